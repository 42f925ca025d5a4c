//! What the program is asked for.

/// The arguments.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// How many schedules; with `mistakes`, for each mistake at most.
    pub count: u64,
    /// The first seed.
    pub seed: u64,
    /// Only the scenario of this name.
    pub scenario: Option<String>,
    /// Whether mistakes are built in.
    pub mistakes: bool,
}

impl Arguments {
    /// Reads them.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut read = Arguments { count: 1000, seed: 1, scenario: None, mistakes: false };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--count" => read.count = number(&value()?)?,
                "--seed" => read.seed = number(&value()?)?,
                "--scenario" => read.scenario = Some(value()?),
                "--mistakes" => read.mistakes = true,
                other => return Err(format!("what is {other}?")),
            }
        }
        Ok(read)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
