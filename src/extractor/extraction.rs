//! Calling the extractor of one index. Whatever it does, it comes back as a result.

use std::fmt;
use std::sync::Arc;

use super::{Extractors, IndexExtractor, IndexKeys};
use crate::base::{Error, Result, contained};

/// How the index keys of an entry are found.
#[derive(Clone)]
pub struct Extraction {
    name: String,
    /// `None`: it is not registered.
    extractor: Option<Arc<dyn IndexExtractor>>,
}

impl fmt::Debug for Extraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_known = self.extractor.is_some();
        f.debug_struct("Extraction").field("name", &self.name).field("is_known", &is_known).finish()
    }
}

impl Extraction {
    /// By the extractor of this name, if it is registered or built in.
    #[must_use]
    pub fn new(name: &str, extractors: &Extractors) -> Extraction {
        Extraction { name: name.to_owned(), extractor: extractors.find(name) }
    }

    /// The extractor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the extractor is registered or built in.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.extractor.is_some()
    }

    /// The extractor, which has to be there.
    ///
    /// # Errors
    /// `ExtractorMissing`.
    pub fn check(&self) -> Result<()> {
        self.known().map(drop)
    }

    fn known(&self) -> Result<&dyn IndexExtractor> {
        let missing = || Error::ExtractorMissing { name: self.name.clone() };
        self.extractor.as_deref().ok_or_else(missing)
    }

    /// The index keys of an entry: ascending, each once.
    ///
    /// # Errors
    /// `ExtractorMissing`, `ExtractorFailed`.
    pub fn keys(&self, key: &[u8], value: &[u8]) -> Result<Vec<Vec<u8>>> {
        let extractor = self.known()?;
        let mut found = IndexKeys::default();
        let failed = |why| Error::ExtractorFailed { extractor: self.name.clone(), why };
        contained(|| extractor.extract(key, value, &mut found)).map_err(failed)?;
        let IndexKeys { mut keys, has_too_many } = found;
        if has_too_many {
            return Err(failed("more index keys than an entry may have".to_owned()));
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extractor::{ExtractError, KEY_COUNT_MAX};

    fn picky(
        key: &[u8],
        value: &[u8],
        keys: &mut IndexKeys,
    ) -> std::result::Result<(), ExtractError> {
        assert!(value != b"panic", "not this one");
        if value == b"error" {
            return Err("not that one".into());
        }
        let count = if value == b"many" { KEY_COUNT_MAX + 1 } else { 1 };
        (0..count).for_each(|_| keys.push(key));
        keys.push("a");
        Ok(())
    }

    #[test]
    fn keys_are_sorted_and_failures_contained() {
        let mut extractors = Extractors::default();
        extractors.add("picky", Arc::new(picky));
        extractors.validate().unwrap();
        let extraction = Extraction::new("picky", &extractors);
        assert_eq!(extraction.keys(b"b", b"").unwrap(), [b"a", b"b"]);
        assert_eq!(extraction.keys(b"a", b"").unwrap(), [b"a"]);
        for (value, said) in
            [(&b"panic"[..], "not this one"), (b"error", "not that"), (b"many", "more")]
        {
            let Err(Error::ExtractorFailed { extractor, why }) = extraction.keys(b"k", value)
            else {
                panic!("{value:?}");
            };
            assert!(extractor == "picky" && why.contains(said), "{why}");
        }
        let missing = Extraction::new("other", &extractors);
        assert!(matches!(missing.check(), Err(Error::ExtractorMissing { .. })));
        extractors.add("value", Arc::new(picky));
        assert!(extractors.validate().is_err());
    }
}
