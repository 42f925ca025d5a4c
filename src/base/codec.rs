//! Codecs: how blocks are compressed. Only the names; the work is done where blocks are made.

/// How the blocks of a keyspace are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// LZ4: fast, about half the size for text.
    Lz4,
}

impl Codec {
    /// The number under which the codec is stored.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
        }
    }

    /// The codec that is stored under this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Codec> {
        match number {
            0 => Some(Codec::None),
            1 => Some(Codec::Lz4),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codecs_map_one_to_one() {
        let known: Vec<Codec> = (0..=u8::MAX).filter_map(Codec::from_u8).collect();
        assert_eq!(known, [Codec::None, Codec::Lz4]);
        assert!(known.iter().all(|&codec| Codec::from_u8(codec.to_u8()) == Some(codec)));
    }
}
