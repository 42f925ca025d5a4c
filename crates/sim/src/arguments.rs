//! Arguments of the command line: a command and `--name number` pairs, and `--diet name`.

use std::collections::BTreeMap;

use lithe_sim::diet::Diet;

/// What was asked for.
pub struct Arguments {
    /// The first word.
    pub command: String,
    numbers: BTreeMap<String, u64>,
    diet: Diet,
}

impl Arguments {
    /// Reads the words of the command line.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let command = words.next().unwrap_or_else(|| "help".to_string());
        let (mut numbers, mut diet) = (BTreeMap::new(), Diet::Everything);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("what is {word:?}?"))?;
            let value = words.next().ok_or_else(|| format!("--{name} needs a number"))?;
            if name == "diet" {
                let mut diets = Diet::ALL.into_iter();
                let found = diets.find(|diet| diet.name() == value);
                diet = found.ok_or_else(|| format!("--diet: {value:?} is none"))?;
                continue;
            }
            let number = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            };
            let number = number.map_err(|_| format!("--{name}: {value:?} is no number"))?;
            numbers.insert(name.to_string(), number);
        }
        Ok(Arguments { command, numbers, diet })
    }

    /// Which operations runs have.
    pub fn diet(&self) -> Diet {
        self.diet
    }

    /// The number behind `--name`.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
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
