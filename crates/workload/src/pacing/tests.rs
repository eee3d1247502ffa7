//! Pacing second by second, against storage that is a formula.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn arrivals(target_iops: f64) -> Arrivals {
    Arrivals::new(target_iops, Random::new(1, "arrivals"), Moment(0))
}

#[test]
fn arrivals_keep_their_rate_however_seldom_they_are_released() {
    for steps in [1, 10, 1000] {
        let mut arrivals = arrivals(1000.0);
        for step in 1..=steps {
            arrivals.release(Moment(0) + SECOND * 10 * step / steps);
        }
        let count = arrivals.queue.len();
        assert!((9_900..=10_700).contains(&count), "{count} in 10 s, in {steps} steps");
        assert!(arrivals.queue.iter().is_sorted(), "each has the moment it was meant for");
    }
}

#[test]
fn the_rate_settles_where_measured_cost_times_rate_is_the_target() {
    let mut arrivals = arrivals(500.0);
    for second in 1..=40 {
        // The storage of this test needs 2.5 reads and writes for every operation.
        let io = (500.0 * AIM) as u64;
        arrivals.observe(Moment(0) + SECOND * second, io, io * 2 / 5, 0);
    }
    assert!((arrivals.rate() - 200.0 * AIM).abs() < 2.0, "{}", arrivals.rate());
    let mut few = super::Arrivals::new(500.0, Random::new(1, "arrivals"), Moment(0));
    few.observe(Moment(0), 100, 3, 0);
    assert_eq!(few.io_per_operation(), 1.0, "three operations prove nothing");
}

#[test]
fn a_rate_is_reached_if_it_was_achieved_or_the_storage_prevented_it() {
    let after = |io: u64, operations: u64, waiting: usize| {
        let mut arrivals = arrivals(200.0);
        for second in 1..=5 {
            assert!(!arrivals.is_at_rate(), "unknown after {second} s");
            arrivals.queue.resize(waiting, Moment(0));
            arrivals.observe(Moment(0) + SECOND * second, io, operations, 0);
        }
        arrivals.is_at_rate()
    };
    assert!(after(200, 100, 0));
    assert!(after(195, 100, 0), "chance may take that");
    assert!(!after(100, 50, 0), "half of it, and nothing waits: too little was asked for");
    assert!(after(100, 50, 300), "half of it, and seconds of operations wait: it was asked for");
}

/// Serves every arrival at once, at a cost that drifts and jumps; returns the achieved IOPS.
fn held(target_iops: f64, seconds: u32, cost: impl Fn(u32) -> f64) -> f64 {
    let mut arrivals = arrivals(target_iops);
    let (mut all_io, mut owed) = (0, 0.0);
    for second in 1..=seconds + 5 {
        let now = Moment(0) + SECOND * second;
        arrivals.release(now);
        let operations = arrivals.queue.len() as u64;
        arrivals.queue.clear();
        owed += operations as f64 * cost(second);
        let io = owed as u64;
        owed -= io as f64;
        arrivals.observe(now, io, operations, 0);
        if second == 5 {
            arrivals.restart(now);
        } else if second > 5 {
            all_io += io;
        }
    }
    all_io as f64 / f64::from(seconds)
}

#[test]
fn storage_that_keeps_up_achieves_the_target_whatever_an_operation_costs() {
    for target in [100.0, 1000.0] {
        for seconds in [30, 60, 120] {
            let steady = held(target, seconds, |_| 2.4);
            let drifting = held(target, seconds, |second| 2.4 - f64::from(second) * 0.01);
            let jumping = held(target, seconds, |second| if second < 12 { 0.8 } else { 1.1 });
            for achieved in [steady, drifting, jumping] {
                let percent = achieved / target * 100.0;
                assert!((100.0..105.0).contains(&percent), "{percent} % of {target} in {seconds} s");
            }
        }
    }
}

#[test]
fn the_arrival_rate_does_not_change_if_storage_falls_behind() {
    let mut arrivals = arrivals(1000.0);
    for second in 1..=30 {
        let now = Moment(0) + SECOND * second;
        arrivals.release(now);
        // It serves 300 operations of 2 I/Os each a second, of about 500 that arrive.
        let served = arrivals.queue.len().min(300);
        arrivals.queue.drain(..served);
        arrivals.observe(now, served as u64 * 2, served as u64, 0);
        let rate = arrivals.rate();
        // By then the error of the first second, which used a guessed cost, is corrected.
        assert!(second < 10 || (450.0..600.0).contains(&rate), "{rate} after {second} s");
    }
    assert!(arrivals.queue.len() > 4000, "{}", arrivals.queue.len());
}

#[test]
fn arrivals_wait_and_are_shed_beyond_a_minute() {
    let mut arrivals = arrivals(100.0);
    arrivals.release(Moment(0) + SECOND * 90);
    assert_eq!(arrivals.queue.len(), 6060, "a minute of arrivals");
    assert_eq!(arrivals.backlog_max, 6060);
    assert!((2_800..=3_400).contains(&arrivals.shed), "{}", arrivals.shed);
}

#[test]
fn a_cache_that_warms_up_does_not_prevent_the_rate() {
    // The first operations read pages that later ones find in the cache: 1.2 reads each, then 1.0, 0.9 …
    let achieved = held(270.0, 5, |second| 0.5 + 0.9 * (-f64::from(second) / 4.0).exp());
    let percent = achieved / 2.7;
    assert!((94.0..112.0).contains(&percent), "{percent} % in the five seconds after the first five");
}
