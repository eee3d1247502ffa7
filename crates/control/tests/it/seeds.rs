//! The seeds that a test of lives runs.

use std::ops::Range;

/// The seeds of a test, and whether they are enough for it to count what happened in them.
pub struct Seeds {
    range: Range<u64>,
    is_whole: bool,
}

impl Seeds {
    /// Those that the environment names (`cargo xtask sim`), else as many as a quick run or a full one has.
    pub fn of(quick: u64, full: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        match number("SPINDLE_SEED") {
            Some(first) => {
                let range = first..first + number("SPINDLE_SEEDS").unwrap_or(1);
                Self { range, is_whole: false }
            }
            None if std::env::var_os("SPINDLE_FULL").is_some() => Self { range: 0..full, is_whole: true },
            None => Self { range: 0..quick, is_whole: true },
        }
    }

    pub fn count(&self) -> usize {
        self.range.clone().count()
    }

    /// Lives each of them, and prints it first: the last one that is printed has failed.
    pub fn live_all(&self, mut live: impl FnMut(u64) -> Result<(), String>) {
        for seed in self.range.clone() {
            println!("SPINDLE_SEED={seed}");
            if let Err(violation) = live(seed) {
                panic!("seed {seed}: {violation}");
            }
        }
    }

    /// Looks at what happened in all of them: a few seeds that somebody chose need not show everything.
    pub fn check(&self, happened: bool, words: &str) {
        assert!(happened || !self.is_whole, "{words} in {} seeds", self.count());
    }
}
