#!/usr/bin/env bash
# Certificates of one cluster: its own authority, and one key each for scheduler, workers and clients.
#   make_certs.sh FOLDER [DAYS]
# Who holds one of the three keys may run code on the cluster. The authority's key is not kept:
# nobody can sign a fourth, and a new cluster gets new certificates.
set -euo pipefail

folder=${1:-} days=${2:-365}
[ -n "$folder" ] || { echo "usage: make_certs.sh FOLDER [DAYS]" >&2; exit 2; }
if [ -e "$folder/ca.pem" ]; then
    echo "$folder holds certificates already; a cluster that runs needs them. Give a new folder, or remove this one first." >&2
    exit 1
fi

umask 077
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

new_key "$work/ca-key.pem"
openssl req -x509 -new -key "$work/ca-key.pem" -sha256 -days "$days" -subj "/CN=rff-stream cluster" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -out "$folder/ca.pem"

for role in scheduler worker client; do
    new_key "$folder/$role-key.pem"
    # Every role both calls and answers: workers fetch moments from each other.
    printf '%s\n' basicConstraints=critical,CA:FALSE keyUsage=critical,digitalSignature \
        extendedKeyUsage=serverAuth,clientAuth subjectKeyIdentifier=hash \
        authorityKeyIdentifier=keyid >"$work/extensions" # the last two: Python 3.13 insists
    openssl req -new -key "$folder/$role-key.pem" -subj "/CN=rff-stream $role" -out "$work/$role.csr"
    openssl x509 -req -in "$work/$role.csr" -CA "$folder/ca.pem" -CAkey "$work/ca-key.pem" \
        -CAserial "$work/serial" -CAcreateserial -sha256 -days "$days" -extfile "$work/extensions" -out "$folder/$role.pem" 2>/dev/null
done
chmod 0400 "$folder"/*.pem
echo "Certificates for $days days in $folder: ca.pem, and NAME.pem with NAME-key.pem for scheduler, worker and client."
