//! Licence expressions, as SPDX has them: which licences one can be had under.

/// Whether what an expression asks for can be met with licences that `is_allowed`.
///
/// # Errors
/// What is wrong with the expression.
pub fn is_met(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let normal = normalized(expression);
    let spaced = normal.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, at: 0, is_allowed };
    let met = reader.any_of()?;
    match reader.at == words.len() {
        true => Ok(met),
        false => Err(format!("`{expression}` goes on where it should end")),
    }
}

/// As it is written today: a slash was once `OR`.
pub fn normalized(expression: &str) -> String {
    expression.replace('/', " OR ").split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    is_allowed: &'a dyn Fn(&str) -> bool,
}

impl Reader<'_> {
    fn take(&mut self, word: &str) -> bool {
        let is_there = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_there);
        is_there
    }

    fn any_of(&mut self) -> Result<bool, String> {
        let mut met = self.all_of()?;
        while self.take("OR") {
            met |= self.all_of()?;
        }
        Ok(met)
    }

    fn all_of(&mut self) -> Result<bool, String> {
        let mut met = self.one()?;
        while self.take("AND") {
            met &= self.one()?;
        }
        Ok(met)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let met = self.any_of()?;
            return if self.take(")") { Ok(met) } else { Err("a bracket is open".to_owned()) };
        }
        let name = self.words.get(self.at).filter(|word| !["AND", "OR", ")"].contains(*word));
        let name = (*name.ok_or("a licence is missing")?).to_owned();
        self.at += 1;
        if !self.take("WITH") {
            return Ok((self.is_allowed)(&name));
        }
        let exception = self.words.get(self.at).ok_or("an exception is missing")?;
        self.at += 1;
        Ok((self.is_allowed)(&format!("{name} WITH {exception}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(expression: &str) -> Result<bool, String> {
        is_met(expression, &|name| ["MIT", "Unicode-3.0", "Zlib WITH x"].contains(&name))
    }

    #[test]
    fn one_of_those_that_can_be_chosen_is_enough_and_all_that_are_joined_are_needed() {
        for yes in [
            "MIT",
            "Apache-2.0 OR MIT",
            "Apache-2.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-3.0 OR MIT AND Unicode-3.0",
            "Zlib WITH x",
        ] {
            assert_eq!(met(yes), Ok(true), "{yes}");
        }
        for no in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND Zlib", "Zlib", "MIT WITH x"] {
            assert_eq!(met(no), Ok(false), "{no}");
        }
    }

    #[test]
    fn what_is_no_expression_is_said_so() {
        for wrong in ["", "MIT OR", "AND MIT", "(MIT", "MIT MIT", "MIT WITH", "MIT)"] {
            assert!(met(wrong).is_err(), "{wrong}");
        }
    }
}
