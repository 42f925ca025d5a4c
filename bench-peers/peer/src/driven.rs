//! An engine that is driven: it does what standard input says, a line at a time, and says on
//! standard output what came of it (`bench-peers/PROTOCOL.md`). It decides and judges nothing.
//!
//! Values are made here, of a seed and a length, and only their digests are told: so that what is
//! said stays short, and programs in other languages say the same.

use lithe_bench::{Commit, Engine, Memory, Records, Result, View, Walk, wrong};
use std::io::{BufRead, BufWriter, Write};
use std::path::PathBuf;

/// The name of the subcommand.
pub const DRIVEN_SUBCOMMAND: &str = "driven";
/// What every line begins with that is an answer: libraries may say other things.
pub const ANSWER: char = '=';

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where the store is, and what it may take.
#[derive(Clone, Debug, clap::Args)]
pub struct DrivenArgs {
    /// The directory of the store.
    #[arg(long)]
    pub dir: PathBuf,
    /// Memory for the engine.
    #[arg(long)]
    pub memory: Memory,
}

/// The value of a seed: `SplitMix64` (S. Vigna), little-endian.
pub fn fill(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len + size_of::<u64>());
    while bytes.len() < len {
        state = state.wrapping_add(STEP);
        let word = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// FNV-1a of 64 bits: what is changed in one place has another one, always.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// The bytes in hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // A string takes everything.
        text
    })
}

/// The bytes of hexadecimal digits.
///
/// # Errors
/// If there is something else, or half a byte.
pub fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes.ok_or_else(|| format!("{text:?} is no hexadecimal number of whole bytes").into())
}

/// Does what standard input says, until it ends.
///
/// # Errors
/// If standard input or output fail, or what is said is no command.
pub fn run<E: Engine>(args: &DrivenArgs) -> Result<()> {
    let input = std::io::stdin().lock();
    let output = BufWriter::new(std::io::stdout().lock());
    obey::<E>(args, input, output)
}

fn obey<E: Engine>(args: &DrivenArgs, input: impl BufRead, output: impl Write) -> Result<()> {
    let mut driven = Driven::<E, _, _> { args, store: None, lines: input.lines(), output };
    while let Some(line) = driven.lines.next() {
        let line = line?;
        match driven.obey(&line) {
            Ok(()) => writeln!(driven.output, "{ANSWER}ok")?,
            Err(error) => {
                let text = error.to_string().replace(['\n', '\r'], " ");
                writeln!(driven.output, "{ANSWER}error {text}")?;
            }
        }
        driven.output.flush()?;
    }
    Ok(())
}

/// A store and who drives it.
struct Driven<'a, E, I, O> {
    args: &'a DrivenArgs,
    store: Option<E>,
    lines: I,
    output: O,
}

impl<E, I, O> Driven<'_, E, I, O>
where
    E: Engine,
    I: Iterator<Item = std::io::Result<String>>,
    O: Write,
{
    fn obey(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["open"] => {
                std::fs::create_dir_all(&self.args.dir)?;
                self.store = Some(E::open(&self.args.dir, self.args.memory)?);
                Ok(())
            }
            ["put", key, seed, len, commit] => {
                let value = fill(seed.parse()?, len.parse()?);
                self.store()?.put(&from_hex(key)?, &value, commit_of(commit)?)
            }
            ["batch", count, commit] => {
                let (count, commit) = (count.parse::<u64>()?, commit_of(commit)?);
                let mut records = Records::default();
                for _ in 0..count {
                    let line = self.next_line()?;
                    let [key, seed, len] = line.split(' ').collect::<Vec<_>>()[..] else {
                        return wrong(format!("{line:?} is no entry"));
                    };
                    records.push(&from_hex(key)?, &fill(seed.parse()?, len.parse()?));
                }
                self.store()?.put_batch(&records, commit)
            }
            ["delete", key, commit] => self.store()?.delete(&from_hex(key)?, commit_of(commit)?),
            ["gets", count] => self.gets(count.parse()?),
            ["scan", "forward"] => self.scan(Walk::Forward),
            ["scan", "reverse"] => self.scan(Walk::Reverse),
            ["flush"] => self.store()?.flush().map(drop),
            ["compact"] => self.store()?.compact().map(drop),
            ["sync"] => self.store()?.sync(),
            ["close"] => match self.store.take() {
                Some(store) => store.close(),
                None => wrong("nothing is open"),
            },
            _ => wrong(format!("{line:?} is no command")),
        }
    }

    fn next_line(&mut self) -> Result<String> {
        match self.lines.next() {
            Some(line) => Ok(line?),
            None => wrong("standard input ended within a command"),
        }
    }

    fn store(&self) -> Result<&E> {
        self.store.as_ref().ok_or_else(|| "nothing is open".into())
    }

    /// Reads keys, each by itself: that one cannot be read is told of it alone.
    fn gets(&mut self, count: u64) -> Result<()> {
        let keys: Result<Vec<String>> = (0..count).map(|_| self.next_line()).collect();
        let mut value = Vec::new();
        for key in keys? {
            value.clear();
            let found = self.store()?.get(&from_hex(&key)?, &mut value);
            match found {
                Ok(true) => {
                    let (len, digest) = (value.len(), digest(&value));
                    writeln!(self.output, "{ANSWER}v {len} {digest:016x}")?;
                }
                Ok(false) => writeln!(self.output, "{ANSWER}n")?,
                Err(error) => {
                    let text = error.to_string().replace(['\n', '\r'], " ");
                    writeln!(self.output, "{ANSWER}e {text}")?;
                }
            }
        }
        Ok(())
    }

    /// Says all entries, as far as they can be read.
    fn scan(&mut self, walk: Walk<'_>) -> Result<()> {
        let store = self.store.as_ref().ok_or("nothing is open")?;
        let (output, mut told) = (&mut self.output, Ok(()));
        let mut view = store.view()?;
        view.scan(walk, |key, value| {
            let (key, len, digest) = (to_hex(key), value.len(), digest(value));
            let said = writeln!(output, "{ANSWER}p {key} {len} {digest:016x}");
            if told.is_ok() {
                told = said;
            }
        })?;
        Ok(told?)
    }
}

fn commit_of(word: &str) -> Result<Commit> {
    match word {
        "durable" => Ok(Commit::Durable),
        "buffered" => Ok(Commit::Buffered),
        _ => wrong(format!("{word:?} is no kind of commit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};

    /// A map that keeps nothing.
    struct Map(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

    struct MapView(BTreeMap<Vec<u8>, Vec<u8>>);

    impl View for MapView {
        fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
            Ok(self.0.get(key).map(|value| out.extend_from_slice(value)).is_some())
        }

        fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
            match walk {
                Walk::Reverse => self.0.iter().rev().for_each(|(key, value)| visit(key, value)),
                _ => self.0.iter().for_each(|(key, value)| visit(key, value)),
            }
            Ok(self.0.len() as u64)
        }
    }

    impl Engine for Map {
        const NAME: &'static str = "map";
        const BUFFERED_SURVIVES_KILL: bool = false;
        type View<'a> = MapView;

        fn open(_: &Path, _: Memory) -> Result<Map> {
            Ok(Map(Mutex::default()))
        }

        fn put(&self, key: &[u8], value: &[u8], _: Commit) -> Result<()> {
            let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            map.insert(key.to_vec(), value.to_vec());
            Ok(())
        }

        fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
            records.iter().try_for_each(|(key, value)| self.put(key, value, commit))
        }

        fn delete(&self, key: &[u8], _: Commit) -> Result<()> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            Ok(())
        }

        fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
            self.view()?.get(key, out)
        }

        fn view(&self) -> Result<MapView> {
            Ok(MapView(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
        }

        fn sync(&self) -> Result<()> {
            wrong("two\nlines")
        }

        fn close(self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn values_and_digests_are_those_of_the_other_languages() {
        assert_eq!(to_hex(&fill(1, 11)), "c15c0289ec2d0a9167ec8e");
        assert_eq!(digest(&fill(1, 11)), 0x5679_F335_5EB3_219A);
        assert_eq!(digest(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(digest(b"foobar"), 0x8594_4171_F739_67E8);
        assert_eq!(digest(&fill(7, 1000)), 0xBAC5_B7F2_2DF6_68EB);
        assert_eq!(from_hex("00ff10").unwrap(), [0, 255, 16]);
        assert!(from_hex("0").is_err() && from_hex("0g").is_err());
    }

    #[test]
    fn each_command_has_one_last_line() {
        let dir = std::env::temp_dir().join("lithe-peer-driven");
        let args = DrivenArgs { dir, memory: Memory::EngineDefault };
        let said = "flush\nopen\nput 6b 1 11 durable\nbatch 2 buffered\n61 7 1000\n62 1 0\n\
                    delete 62 durable\ngets 2\n6b\n62\nscan forward\nscan reverse\nsync\nwhat\n\
                    close\nclose\n";
        let mut output = Vec::new();
        obey::<Map>(&args, said.as_bytes(), &mut output).unwrap();
        let expected = "=error nothing is open\n=ok\n=ok\n=ok\n=ok\n\
                        =v 11 5679f3355eb3219a\n=n\n=ok\n\
                        =p 61 1000 bac5b7f22df668eb\n=p 6b 11 5679f3355eb3219a\n=ok\n\
                        =p 6b 11 5679f3355eb3219a\n=p 61 1000 bac5b7f22df668eb\n=ok\n\
                        =error two lines\n=error \"what\" is no command\n=ok\n\
                        =error nothing is open\n";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }
}
