# Names a folder of certificates for Dask. To be sourced: certificates.sh [FOLDER]
# shellcheck shell=bash
certificates=${1:-${RFF_FOLDER:-$HOME/.rff-stream}/certs}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export DASK_CONFIG=$here/../dask.yaml
export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$certificates/ca.pem
for role in scheduler worker client; do
    export "DASK_DISTRIBUTED__COMM__TLS__${role^^}__CERT=$certificates/$role.pem"
    export "DASK_DISTRIBUTED__COMM__TLS__${role^^}__KEY=$certificates/$role-key.pem"
done
