//! Seeds that show planted bugs. One is remembered beside each bug, so that a quick run tries no other.

use std::fmt::Debug;

/// A bug must show within this many seeds.
pub const SEEDS_MAX: u64 = 200;

/// The failure of the seed that shows `bug`: of the remembered one, or, if that shows it no longer and in full
/// runs, of the first of all seeds. `run` returns how a seed fails.
///
/// A warning names that first seed if another one is remembered. None if the bug escapes.
pub fn caught<F>(bug: &impl Debug, remembered: u64, run: impl Fn(u64) -> Option<F>) -> Option<F> {
    assert!(remembered < SEEDS_MAX, "{bug:?} must show within {SEEDS_MAX} seeds");
    if std::env::var_os("SPINDLE_FULL").is_none()
        && let Some(failure) = run(remembered)
    {
        return Some(failure);
    }
    let (seed, failure) = (0..SEEDS_MAX).find_map(|seed| Some((seed, run(seed)?)))?;
    if seed != remembered {
        println!("warning: the table is out of date: seed {seed} shows {bug:?}, not {remembered}");
    }
    Some(failure)
}
