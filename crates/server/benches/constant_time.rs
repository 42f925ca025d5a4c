//! Whether the time that a wrong token takes tells anything: by Welch's test on two kinds of tokens
//! that take turns at random, as Reparaz, Balasch and Verbauwhede do it ("Dude, is my code constant
//! time?", 2017).
//!
//! ```text
//! cargo bench -p lithe-server --bench constant_time -- [SAMPLES] [SEED]
//! ```
//!
//! Prints t of each pair of kinds, of all times and of those below a percentile, as what disturbs a
//! measurement makes it longer. Ends with 1 when one is above 4.5: then more than chance tells them
//! apart. As a canary it looks at a comparison that ends at the first difference, which has to be
//! told apart.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use lithe_server::auth::{Authority, NewToken};
use lithedb::base::{Entropy, SeededEntropy};

/// Above it two kinds are told apart.
const T_MAX: f64 = 4.5;
/// Tokens in the file.
const TOKENS: usize = 100;
/// Inputs are made ahead, and used again in other orders.
const INPUTS: usize = 4096;
/// Times above these shares of all are left out.
const SHARES: [f64; 4] = [1.0, 0.99, 0.9, 0.5];

/// Means and variances of two kinds, as they come (Welford).
#[derive(Default)]
struct Welch([(f64, f64, f64); 2]);

impl Welch {
    fn add(&mut self, kind: usize, value: f64) {
        let (count, mean, squares) = &mut self.0[kind];
        *count += 1.0;
        let off = value - *mean;
        *mean += off / *count;
        *squares += off * (value - *mean);
    }

    fn t(&self) -> f64 {
        let [(n, mean, squares), (m, other, of_other)] = self.0;
        let variance = squares / (n - 1.0) / n + of_other / (m - 1.0) / m;
        if variance == 0.0 { 0.0 } else { (mean - other) / variance.sqrt() }
    }
}

struct Random(SeededEntropy);

impl Random {
    fn hex(&self, digits: usize) -> String {
        (0..digits).map(|_| format!("{:x}", self.0.next_u64() >> 60)).collect()
    }

    fn below(&self, count: usize) -> usize {
        (self.0.next_u64() % count as u64) as usize
    }
}

/// Times of one kind beside those of another: the largest |t|.
fn compare(
    what: &str,
    samples: usize,
    random: &Random,
    inputs: &[Vec<String>; 2],
    work: impl Fn(&str),
) -> f64 {
    let mut times = Vec::with_capacity(samples);
    let mut input = String::with_capacity(256);
    for _ in 0..samples {
        let kind = random.below(2);
        // From one place, so that where an input lies does not tell its kind.
        input.clear();
        input.push_str(&inputs[kind][random.below(INPUTS)]);
        let start = Instant::now();
        work(black_box(&input));
        times.push((kind, start.elapsed().as_nanos() as f64));
    }
    let mut sorted: Vec<f64> = times.iter().map(|(_, time)| *time).collect();
    sorted.sort_by(f64::total_cmp);
    let mut worst: f64 = 0.0;
    let mut told = String::new();
    for share in SHARES {
        let limit = sorted[((samples - 1) as f64 * share) as usize];
        let mut welch = Welch::default();
        times.iter().filter(|(_, time)| *time <= limit).for_each(|(kind, time)| {
            welch.add(*kind, *time);
        });
        worst = worst.max(welch.t().abs());
        told += &format!("  {:.0} %: {:.2}", share * 100.0, welch.t());
    }
    println!("{what}, {samples} samples, median {} ns, t{told}", sorted[samples / 2]);
    worst
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let samples = numbers.next().unwrap_or(1_000_000).max(100) as usize;
    let random = Random(SeededEntropy::new(numbers.next().unwrap_or(1)));
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("tokens");
    let mut known = Vec::new();
    for _ in 0..TOKENS {
        let token = NewToken::make("somebody", &["*:all".parse()?])?;
        token.add_to(&file)?;
        known.push(token.text().to_owned());
    }
    let authority = Authority::open(Some(&file), 10)?;
    let inputs = |make: &dyn Fn(usize) -> String| (0..INPUTS).map(make).collect::<Vec<String>>();
    let look_up = |token: &str| assert!(black_box(authority.who_has(token)).is_none());

    // One token's secret with another last digit, and secrets that have nothing of it.
    let (head, last) = known[0].split_at(known[0].len() - 1);
    let other = if last == "0" { "1" } else { "0" };
    let id = &known[0][..known[0].len() - 64];
    let secrets =
        [inputs(&|_| format!("{head}{other}")), inputs(&|_| format!("{id}{}", random.hex(64)))];
    // Ids that there are, and that there are not, with secrets that are wrong.
    let ids = [
        inputs(&|at| format!("{}{}", &known[at % TOKENS][..23], random.hex(64))),
        inputs(&|_| format!("lithe_{}_{}", random.hex(16), random.hex(64))),
    ];
    let mut worst = compare("almost a secret, or none of it", samples, &random, &secrets, look_up);
    worst = worst.max(compare("a known id, or an unknown", samples, &random, &ids, look_up));
    let right = known[0].as_bytes();
    let naive = |token: &str| {
        let differs = token.bytes().zip(right).position(|(one, other)| one != *other);
        assert!(black_box(differs).is_some());
    };
    let canary = compare("the canary", samples, &random, &secrets, naive);
    if worst > T_MAX || canary <= T_MAX {
        println!("told apart: {}, canary found: {}", worst > T_MAX, canary > T_MAX);
        std::process::exit(1);
    }
    println!("nothing is told apart, but the canary");
    Ok(())
}
