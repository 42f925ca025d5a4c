# Everyday commands. `just check` is all of CI.

check:
    .ci/run

test:
    cargo test --workspace

demo:
    cargo run --release -- demo

bench *ARGS:
    cargo run --release -- bench {{ARGS}}
