//! Integration tests, one binary.
#![allow(clippy::unwrap_used, reason = "a test that fails should panic where it fails")]

mod tidy;
