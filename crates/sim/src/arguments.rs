//! Arguments of the command line: a command and `--name number` pairs, and a few whose values are
//! words.

use std::collections::BTreeMap;

use lithe_sim::diet::Diet;
use lithe_sim::shrink::parse_kept;

/// Names whose values are words, and are taken as they are.
const WORDS: [&str; 2] = ["ledger", "only"];

/// What was asked for.
pub struct Arguments {
    /// The first word.
    pub command: String,
    numbers: BTreeMap<String, u64>,
    words: BTreeMap<String, String>,
    diet: Diet,
    kept: Option<Vec<usize>>,
}

impl Arguments {
    /// Reads the words of the command line.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let command = words.next().unwrap_or_else(|| "help".to_string());
        let (numbers, diet) = (BTreeMap::new(), Diet::Everything);
        let mut read = Arguments { command, numbers, words: BTreeMap::new(), diet, kept: None };
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("what is {word:?}?"))?;
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            read.set(name, value)?;
        }
        Ok(read)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        if WORDS.contains(&name) {
            self.words.insert(name.to_string(), value);
            return Ok(());
        }
        match name {
            "diet" => {
                let mut diets = Diet::ALL.into_iter();
                let found = diets.find(|diet| diet.name() == value);
                self.diet = found.ok_or_else(|| format!("--diet: {value:?} is none"))?;
            }
            "keep" => {
                let kept = parse_kept(&value);
                self.kept = Some(kept.ok_or_else(|| format!("--keep: {value:?} is no list"))?);
            }
            _ => {
                let number = match value.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => value.parse(),
                };
                let number = number.map_err(|_| format!("--{name}: {value:?} is no number"))?;
                self.numbers.insert(name.to_string(), number);
            }
        }
        Ok(())
    }

    /// Which operations runs have.
    pub fn diet(&self) -> Diet {
        self.diet
    }

    /// Which operations of a run are left, if not all.
    pub fn kept(&self) -> Option<Vec<usize>> {
        self.kept.clone()
    }

    /// The number behind `--name`.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    /// The word behind `--name`, of those that have words.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.words.get(name).map(String::as_str)
    }

    /// The seed of the campaign.
    pub fn seed(&self) -> u64 {
        self.number("seed").unwrap_or(1)
    }

    /// On how many threads to run.
    pub fn threads(&self) -> usize {
        self.number("threads").unwrap_or(2) as usize
    }
}
