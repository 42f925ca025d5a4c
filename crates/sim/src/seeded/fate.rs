//! What became of a seeded bug, as one line: what a child says, and its parent reads.

/// What became of a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was found, and without it the same try finds nothing.
    Killed {
        /// By this runner,
        by: String,
        /// after so many tries,
        tries: u64,
        /// as this.
        found_as: String,
        /// Arguments that show it again, while it is seeded.
        repeat: String,
    },
    /// The same try finds something without it as well: that says nothing about the bug.
    FoundWithout {
        /// Arguments that show it.
        repeat: String,
    },
    /// No runner has found it.
    Survived,
    /// The program ended in another way than by saying one of these.
    Ended(String),
    /// Nothing was said within the time.
    Late,
}

const KILLED: &str = "killed";
const FOUND_WITHOUT: &str = "found without it";
const SURVIVED: &str = "survived";

impl Fate {
    /// Whether a runner has found it.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        match self {
            // Without the bug nothing of the kind happens, as the other bugs' runs show.
            Fate::Killed { .. } | Fate::Ended(_) => true,
            Fate::FoundWithout { .. } | Fate::Survived | Fate::Late => false,
        }
    }

    /// As a child says it.
    #[must_use]
    pub fn to_line(&self) -> String {
        match self {
            Fate::Killed { by, tries, found_as, repeat } => {
                format!("{KILLED}\t{by}\t{tries}\t{found_as}\t{repeat}")
            }
            Fate::FoundWithout { repeat } => format!("{FOUND_WITHOUT}\t{repeat}"),
            Fate::Survived | Fate::Ended(_) | Fate::Late => SURVIVED.to_owned(),
        }
    }

    /// What a child has said, if it is one of its lines.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Fate> {
        match line.split('\t').collect::<Vec<_>>()[..] {
            [KILLED, by, tries, found_as, repeat] => Some(Fate::Killed {
                by: by.into(),
                tries: tries.parse().ok()?,
                found_as: found_as.into(),
                repeat: repeat.into(),
            }),
            [FOUND_WITHOUT, repeat] => Some(Fate::FoundWithout { repeat: repeat.into() }),
            [SURVIVED] => Some(Fate::Survived),
            _ => None,
        }
    }

    /// As cells of the table: by which runner, after how many tries, as what, and the command.
    #[must_use]
    pub fn cells(&self) -> String {
        match self {
            Fate::Killed { by, tries, found_as, repeat } => {
                format!("{by} | {tries} | {found_as} | `{repeat}` |")
            }
            Fate::FoundWithout { repeat } => format!("- | | found without it | `{repeat}` |"),
            Fate::Survived => "SURVIVED | | | |".to_owned(),
            Fate::Ended(how) => format!("the program ended | | {how} | |"),
            Fate::Late => "SURVIVED | | out of time | |".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read() {
        for fate in [
            Fate::Killed {
                by: "crash".into(),
                tries: 3,
                found_as: "lost".into(),
                repeat: "crash --run 0x1".into(),
            },
            Fate::FoundWithout { repeat: "model --run 0x1".into() },
            Fate::Survived,
        ] {
            assert_eq!(Fate::from_line(&fate.to_line()), Some(fate));
        }
        assert_eq!(Fate::from_line("       0  findings"), None);
        assert_eq!(Fate::from_line("killed\tcrash\tthree\tlost\t"), None);
    }
}
