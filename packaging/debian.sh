#!/usr/bin/env bash
# Makes the Debian package: needs cargo-deb (`cargo install cargo-deb`). What the program writes of itself, its
# manual and completions for shells, is made first, by the program that goes into the package.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked -p lithe-cli --bin lithe
lithe=${CARGO_TARGET_DIR:-$PWD/target}/release/lithe
parts=$PWD/target/debian-parts
rm -rf "$parts"
mkdir -p "$parts/man" "$parts/completions"
"$lithe" --quiet man --out "$parts/man"
"$lithe" completions bash > "$parts/completions/lithe"
"$lithe" completions zsh > "$parts/completions/_lithe"
"$lithe" completions fish > "$parts/completions/lithe.fish"
cargo deb -p lithe-cli --no-build --locked
