"""An ocean-like cube with a known answer: the latent heat flux of a bulk formula, plus noise.

Wind speed, specific humidity, air temperature and sea-surface temperature are made of
travelling waves, seasons and eddies, time × lat × lon, with land as NaN. From them

    Q = ρ L C U (q_s − q_a) + ε    in W m⁻², ε ~ N(0, 12²)

- ρ = p / (R_d T (1 + 0.608 q_a)), air of pressure p = 101 325 Pa and temperature T in K,
  R_d = 287.05 J kg⁻¹ K⁻¹;
- L = 2.501·10⁶ − 2 370 t_s, latent heat of vaporisation in J kg⁻¹, t_s of the sea in °C;
- C = 1.2·10⁻³, the transfer coefficient (no unit); U, the wind speed in m s⁻¹;
- q_a, specific humidity of the air in kg kg⁻¹; q_s = 0.98 q_sat(t_s), that over salt water;
- q_sat = 0.622 e / (p − 0.378 e), e = 611.2 exp(17.67 t / (t + 243.5)) Pa, t in °C.

References
----------
Bolton 1980, equation 10 (e); Fairall et al. 1996 (L, and 0.98 for salt water); Large and
Pond 1982 (C, rounded).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rff_stream._array import Float64

if TYPE_CHECKING:
    import xarray

TARGET = "latent_heat_flux"
ATTRIBUTES = {
    "wind_speed": ("m s-1", "wind speed at 10 m"),
    "specific_humidity": ("kg kg-1", "specific humidity at 2 m"),
    "air_temperature": ("K", "air temperature at 2 m"),
    "sea_surface_temperature": ("K", "sea surface temperature"),
    TARGET: ("W m-2", "upward latent heat flux with instrument noise"),
}
INPUTS = tuple(name for name in ATTRIBUTES if name != TARGET)
NOISE_VARIANCE = 144.0
"""Of ε, in (W m⁻²)²."""
TITLE = "Ocean-like demonstration data of rff_stream"

PRESSURE = 101_325.0  # Pa
GAS_CONSTANT = 287.05  # J kg⁻¹ K⁻¹, dry air
TRANSFER = 1.2e-3  # a usual Dalton number over the sea
FREEZING = 273.15  # K
LAND_SHARE = 0.3  # as of the Earth (0.29)
FIRST_DAY = np.datetime64("2015-01-01", "ns")


def saturation_humidity(celsius: Float64) -> Float64:
    """q_sat in kg kg⁻¹ over fresh water, of a temperature in °C."""
    pressure = 611.2 * np.exp(17.67 * celsius / (celsius + 243.5))
    return np.asarray(0.622 * pressure / (PRESSURE - 0.378 * pressure))


def latent_heat_flux(wind: Float64, humidity: Float64, air: Float64, sea: Float64) -> Float64:
    """Q in W m⁻² without noise; wind in m s⁻¹, humidity in kg kg⁻¹, temperatures in K."""
    density = PRESSURE / (GAS_CONSTANT * air * (1 + 0.608 * humidity))
    vaporisation = 2.501e6 - 2370 * (sea - FREEZING)
    deficit = 0.98 * saturation_humidity(sea - FREEZING) - humidity
    return np.asarray(density * vaporisation * TRANSFER * wind * deficit)


@dataclass(frozen=True, slots=True, eq=False)
class Waves:
    """Σ aₖ cos(mₖ lon + nₖ lat + pₖ − ωₖ t) of variance 1: travelling weather."""

    space: Float64  # (2, K, cells): cosine and sine of the waves on day 0
    rates: Float64  # (K,): ωₖ in radians a day

    @classmethod
    def draw(cls, lat: Float64, lon: Float64, rng: np.random.Generator, count: int = 12) -> Waves:
        """Waves with 1 to 6 crests around the globe and periods of 4 to 40 days."""
        around = rng.integers(1, 7, count)[:, None, None]
        along = rng.uniform(-6, 6, count)[:, None, None]
        phase = rng.uniform(0, 2 * np.pi, count)[:, None, None]
        angle = around * np.radians(lon) + along * np.radians(lat)[:, None] + phase
        space = np.stack([np.cos(angle), np.sin(angle)]).reshape(2, count, -1)
        return cls(space * np.sqrt(2 / count), 2 * np.pi / rng.uniform(4, 40, count))

    def __call__(self, days: Float64) -> Float64:
        """The field (days, cells)."""
        turned = np.outer(days, self.rates)
        return np.asarray(np.cos(turned) @ self.space[0] + np.sin(turned) @ self.space[1])


@dataclass(frozen=True)
class Cube:
    """A seeded cube, made one run of days at a time.

    The same numbers in runs of any length: every day has a generator of its own.
    """

    n_days: int = 365
    n_lat: int = 72  # cells of the grid
    n_lon: int = 144
    seed: int = 0

    @cached_property
    def lat(self) -> Float64:
        """Latitudes of the cells, in degrees."""
        return np.asarray((np.arange(self.n_lat) + 0.5) * (140 / self.n_lat) - 70, np.float64)

    @cached_property
    def lon(self) -> Float64:
        """Longitudes of the cells, in degrees."""
        return np.asarray((np.arange(self.n_lon) + 0.5) * (360 / self.n_lon), np.float64)

    @cached_property
    def weather(self) -> tuple[Waves, ...]:
        """Waves of wind (two), humidity, air and sea."""
        rng = np.random.default_rng(self.seed)
        return tuple(Waves.draw(self.lat, self.lon, rng) for _ in range(5))

    @cached_property
    def land(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Cells (cells,) that are land: the lowest of one more set of waves."""
        waves = Waves.draw(self.lat, self.lon, np.random.default_rng([self.seed, 1]), count=4)
        height = waves(np.zeros(1))[0]
        return np.asarray(height < np.quantile(height, LAND_SHARE))

    @property
    def n_valid(self) -> int:
        """Rows over the sea."""
        return self.n_days * int((~self.land).sum())

    def eddies(self, days: Float64) -> Float64:
        """White noise (6, days, cells): for wind (two), humidity, air, sea and ε."""
        shape = (6, self.n_lat * self.n_lon)
        seeds = ([self.seed, 2, int(day)] for day in days)
        drawn = [np.random.default_rng(seed).standard_normal(shape) for seed in seeds]
        return np.stack(drawn, axis=1)

    def sea(self, days: Float64) -> Float64:
        """Mean temperature of the sea in °C: warm in the tropics, with seasons."""
        sine = np.repeat(np.sin(np.radians(self.lat)), self.n_lon)
        season = np.cos(2 * np.pi * (days - 45) / 365.25)[:, None]
        return np.asarray(28.5 - 31 * sine**2 - 4 * season * sine)

    def values(self, days: Float64) -> dict[str, Float64]:
        """All variables (days, cells), land as NaN."""
        east, north, damp, warm, surface = (waves(days) for waves in self.weather)
        eddies = self.eddies(days)
        sea = self.sea(days) + 1.2 * surface + 0.3 * eddies[4]
        sea = np.maximum(sea, -1.8) + FREEZING
        air = sea - 1.0 + 1.6 * warm + 0.5 * eddies[3]
        share = np.clip(0.78 + 0.08 * damp + 0.03 * eddies[2], 0.3, 1.0)
        humidity = share * saturation_humidity(air - FREEZING)
        wind = np.hypot(5.5 + 2.5 * east + 0.8 * eddies[0], 3.0 * north + 0.8 * eddies[1])
        flux = latent_heat_flux(wind, humidity, air, sea) + NOISE_VARIANCE**0.5 * eddies[5]
        found = dict(zip(ATTRIBUTES, (wind, humidity, air, sea, flux), strict=True))
        return {name: np.where(self.land, np.nan, each) for name, each in found.items()}

    def block(self, first: int, last: int) -> xarray.Dataset:
        """Days first … last−1 as a Dataset of float32 variables."""
        import xarray

        days = np.arange(first, last, dtype=np.float64)
        shape = (last - first, self.n_lat, self.n_lon)
        variables = {
            name: xarray.Variable(
                ("time", "lat", "lon"),
                values.reshape(shape).astype(np.float32),
                dict(zip(("units", "long_name"), ATTRIBUTES[name], strict=True)),
            )
            for name, values in self.values(days).items()
        }
        return xarray.Dataset(variables, self.coordinates(days), self.attributes)

    def coordinates(self, days: Float64) -> dict[str, xarray.Variable]:
        """Time, latitude and longitude of a run of days."""
        import xarray

        times = FIRST_DAY + days.astype("timedelta64[D]")
        return {
            "time": xarray.Variable("time", times, {"standard_name": "time"}),
            "lat": xarray.Variable("lat", self.lat, {"units": "degrees_north"}),
            "lon": xarray.Variable("lon", self.lon, {"units": "degrees_east"}),
        }

    @property
    def attributes(self) -> dict[str, str | float | int]:
        """What the data set says about itself."""
        return {
            "title": TITLE,
            "formula": "rho L C U (0.98 q_sat - q_a) + noise; see rff_stream.demo.cube",
            "noise_variance": NOISE_VARIANCE,
            "seed": self.seed,
        }


def encodings(cube: Cube, block_days: int) -> dict[str, dict[str, object]]:
    """How every variable is stored: one chunk per run of days, times as one chunk."""
    chunks = (block_days, cube.n_lat, cube.n_lon)
    units = f"days since {FIRST_DAY.astype('datetime64[D]')}"
    time: dict[str, object] = {"chunks": (cube.n_days,), "units": units, "dtype": "int64"}
    return {"time": time} | {name: {"chunks": chunks} for name in ATTRIBUTES}


def write_cube(cube: Cube, path: Path, block_days: int = 24) -> Iterator[int]:
    """Writes a cube as Zarr v3 to a new path, chunk by chunk of days; yields days written.

    A chunk holds every latitude and longitude.
    """
    for first in range(0, cube.n_days, block_days):
        last = min(first + block_days, cube.n_days)
        block = cube.block(first, last)
        if first:
            block.to_zarr(path, append_dim="time", consolidated=False)
        else:
            encoding = encodings(cube, block_days)
            block.to_zarr(path, mode="w-", zarr_format=3, consolidated=False, encoding=encoding)
        yield last
