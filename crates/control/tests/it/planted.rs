//! Seeds that show planted bugs. One is remembered beside each bug, so that a quick run tries no other.

use std::{fmt::Debug, panic};

/// The seed that shows `bug`, and how it fails: the remembered one, or, if that shows it no longer and in full
/// runs, the first of `seeds`. `run` returns how a seed fails.
///
/// A warning names that first seed if another one is remembered. None if the bug escapes.
pub fn noticed<F>(
    bug: impl Debug,
    (remembered, seeds): (u64, u64),
    run: impl Fn(u64) -> Option<F>,
) -> Option<(u64, F)> {
    assert!(remembered < seeds, "{bug:?} must show within {seeds} seeds");
    if std::env::var_os("SPINDLE_FULL").is_none()
        && let Some(failure) = run(remembered)
    {
        return Some((remembered, failure));
    }
    let (seed, failure) = (0..seeds).find_map(|seed| Some((seed, run(seed)?)))?;
    if seed != remembered {
        println!("warning: the table is out of date: seed {seed} shows {bug:?}, not {remembered}");
    }
    Some((seed, failure))
}

/// Requires of each bug that one of `seeds` panics with it, the remembered one to begin with.
#[track_caller]
#[cfg(debug_assertions)]
pub fn assert_dr_bugs_panic<T>(
    bugs: impl IntoIterator<Item = (control::planted::DrBug, u64)>,
    seeds: u64,
    live: impl Fn(u64) -> T + panic::RefUnwindSafe,
) {
    assert_panics(bugs, seeds, |bug, seed| control::planted::with_dr_bug(bug, || live(seed)));
}

/// As [`assert_dr_bugs_panic`], of bugs that `live` plants.
#[track_caller]
#[cfg(debug_assertions)]
pub fn assert_panics<B: Copy + Debug + panic::RefUnwindSafe, T>(
    bugs: impl IntoIterator<Item = (B, u64)>,
    seeds: u64,
    live: impl Fn(B, u64) -> T + panic::RefUnwindSafe,
) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let mut escaped = Vec::new();
    for (bug, remembered) in bugs {
        let panics = |seed| panic::catch_unwind(|| live(bug, seed)).is_err().then_some(());
        match noticed(bug, (remembered, seeds), panics) {
            Some((seed, ())) => println!("note: {bug:?} was noticed by seed {seed}"),
            None => escaped.push(bug),
        }
    }
    panic::set_hook(hook);
    assert!(escaped.is_empty(), "{escaped:?} escaped {seeds} seeds");
}
