//! Thirty-two secret bytes that are zeroed when they are let go, and never shown.

use std::fmt;

use zeroize::Zeroize;

/// Bytes of a key.
pub const SECRET_LEN: usize = 32;

/// A key (B3).
#[derive(Clone)]
pub struct Secret(Box<[u8; SECRET_LEN]>);

impl Secret {
    /// Takes the bytes from where they are, and zeroes them there.
    pub fn take(bytes: &mut [u8; SECRET_LEN]) -> Secret {
        let secret = Secret::filled(|taken| taken.copy_from_slice(bytes));
        bytes.zeroize();
        secret
    }

    /// A secret whose bytes `fill` writes where they stay.
    pub fn filled(fill: impl FnOnce(&mut [u8; SECRET_LEN])) -> Secret {
        let mut secret = Secret(Box::new([0; SECRET_LEN]));
        fill(&mut secret.0);
        secret
    }

    pub fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
