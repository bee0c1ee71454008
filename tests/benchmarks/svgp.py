"""CPU and wall seconds to an RMSE on protein: local features beside GPyTorch's SVGP, in one run.

    python tests/benchmarks/svgp.py [--target 0.52] [--minutes 4] [--device cpu] [--threads 8]

Both sides have one Matérn 3/2 kernel with a length-scale for each input and the same rows (split
0, z-scored). SVGP is that of GPyTorch's tutorial: inducing points that are learnt, Adam, batches
of 1,024 rows. It is tested after each epoch on the test rows, which its clock does not count, and
stops at the target. CPU seconds are those of all threads. Needs torch and gpytorch.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "accuracy"))
from regression import Split, load, rmse

import rff_stream as rs


def local(split: Split) -> tuple[float, float, float]:
    """RMSE, CPU and wall seconds of fit and prediction."""
    X, y, X_test, y_test = split
    cpu, wall = time.process_time(), time.perf_counter()
    model = rs.GaussianProcessRegressor(
        rs.Matern(nu=1.5), features=rs.Cells(256, 4, 128), length_scale="ard", random_state=0,
        progress=False,
    )  # fmt: skip
    error = rmse(model.fit(X, y).predict(X_test), y_test)
    return error, time.process_time() - cpu, time.perf_counter() - wall


def svgp(
    split: Split, *, inducing: int, target: float, seconds: float, device: str, rate: float
) -> tuple[float, float, float, int]:
    """Least RMSE, CPU and wall seconds until then, and epochs; it stops at the target."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    X, y, X_test, y_test = (torch.tensor(a, dtype=torch.float32).to(device) for a in split)

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points: Any) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            strategy = gpytorch.variational.VariationalStrategy(
                self, points, q, learn_inducing_locations=True
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean()
            matern = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=X.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(matern)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model(X[torch.randperm(len(X))[:inducing]].clone()).to(device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=rate)
    used_cpu = used_wall = 0.0
    best: tuple[float, float, float, int] = (np.inf, 0.0, 0.0, 0)
    epoch = 0
    while used_wall < seconds and best[0] > target:
        cpu, wall = time.process_time(), time.perf_counter()
        model.train()
        for rows in torch.randperm(len(X), device=device).split(1024):
            optimiser.zero_grad()
            (-objective(model(X[rows]), y[rows])).backward()
            optimiser.step()
        if device != "cpu":
            torch.cuda.synchronize()
        used_cpu += time.process_time() - cpu
        used_wall += time.perf_counter() - wall
        epoch += 1
        if epoch % 5 and used_wall < seconds:
            continue
        model.eval()
        with torch.no_grad():
            parts = [model(rows).mean for rows in X_test.split(1024)]
        error = float(((torch.cat(parts) - y_test) ** 2).mean().sqrt())
        if error < best[0]:
            best = (error, used_cpu, used_wall, epoch)
        if epoch % 10 == 0:
            print(f"    epoch {epoch:4} {error:.4f} {used_cpu:8.0f} {used_wall:8.0f}", flush=True)
    return best


def main() -> None:
    """Print a line for each side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=float, default=0.52)
    parser.add_argument("--minutes", type=float, default=4.0, help="for each SVGP")
    parser.add_argument("--inducing", default="1024")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.01)
    asked = parser.parse_args()
    split = load("protein")
    print(f"{'':28} {'RMSE':>8} {'CPU s':>8} {'wall s':>8}", flush=True)
    error, cpu, wall = local(split)
    print(f"{'local features':28} {error:8.4f} {cpu:8.1f} {wall:8.1f}", flush=True)
    import torch

    torch.set_num_threads(asked.threads)
    for inducing in map(int, asked.inducing.split(",")):
        found = svgp(
            split, inducing=inducing, target=asked.target, seconds=60 * asked.minutes,
            device=asked.device, rate=asked.rate,
        )  # fmt: skip
        label = f"SVGP {inducing} on {asked.device}, {found[3]} epochs"
        print(f"{label:28} {found[0]:8.4f} {found[1]:8.1f} {found[2]:8.1f}", flush=True)


if __name__ == "__main__":
    main()
