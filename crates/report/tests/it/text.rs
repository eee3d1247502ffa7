use expect_test::expect;
use report::text::{TextOptions, render};

use crate::small;

#[test]
fn the_whole_report_for_a_terminal() {
    expect![[r#"
        Storage proof
        one group on /mnt/a
        mail-store-2 · 2026-03-14 18:42 UTC

        ▌ FAIL  Smoke test, 2 min
        ▌ Database reads averaged 23.8 ms; the limit is 20 ms.

        Database reads  23.8 ms  (limit 20 ms)

        Findings
        ────────────────────────────────────────────────────────────────────────────────────
        error    Database reads are too slow.
                 (limits, line 1)
        note     Log and database share a volume.

        Limits
        ────────────────────────────────────────────────────────────────────────────────────
        What the run was held to.

        Result      Limit on                 Measured      Limit  Source
        ──────────  ───────────────────────  ────────  ─────────  ────────
        fail        Database reads, average   23.8 ms  ≤ 20.0 ms  AMI 2008
        not judged  Slowest log write         41.0 ms             AMI 2008

        Configuration
        ────────────────────────────────────────────────────────────────────────────────────
        As given.

        Cache         256 MiB
        Lazy commits  55 %  (AMI 2008)
        Verified      pass

        By volume
                  Reads  Latency
        Volume       /s       ms
        ──────  ───────  ───────
        /mnt/a  1,170.0     23.8
        /mnt/b        –   500 ms
        ──────  ───────  ───────
        All     1,170.0

        I/O
        ────────────────────────────────────────────────────────────────────────────────────
        Latency over time
        latency, ms · time in min:s
        30│                                                                   ⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⠤⠤⠤⠤
          │                            ⢀⣀⣀⣀⣀⣀⣀⣀⣀⣀⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠒⠒⠒⠒⠒⠒⠒⠒⠒⠊⠉⠉⠉⠉⠉⠉⠉⠉⠉
        20│ ⠤⠤⠤⠤⠤⠤⠤⠤⠒⠒⠒⠒⠒⠒⠒⠒⠒⠊⠉⠉⠉⠉⠉⠉⠉⠉⠉⠁┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
          │
          │
        10│
          │
         0│
            0:00      0:15      0:30      0:45      1:00     1:15      1:30      1:45   2:00
        Line   Lowest point  Mean of points  Highest point         Own scale, from 0
        ─────  ────────────  ──────────────  ─────────────  ────────────────────────
        reads         20 ms           24 ms          28 ms  ▆▆▆▆▇▇▇▇▇▇▇▇▇▇██████████
        ┄ limit on the average: 20 ms
        ┄ limit on any 15 s: 500 ms

        Every I/O
        Line   Counted    p50    p95    p99  p99.9  Longest             1 ms … 100 ms
        ─────  ───────  ─────  ─────  ─────  ─────  ───────  ────────────────────────
        reads    1,000  20 ms  20 ms  20 ms  80 ms    80 ms  ▁▁▁▁▁▁▁▁▁▁▁▁███▅▁▁▁▁▁▁▁·
        ┄ limit on the average: 20 ms

        Test log
        ────────────────────────────────────────────────────────────────────────────────────
        16:40:02  Attaching databases
        16:42:02  Measuring ends

        spindle 0.1.0 · spindle prove /mnt/a · seed 7331
    "#]]
    .assert_eq(&render(&small(), TextOptions { width: 84, colour: false }));
}

#[test]
fn on_a_narrow_terminal_a_table_goes_on_below_with_its_first_column() {
    let text = render(&small(), TextOptions { width: 40, colour: false });
    let limits: Vec<&str> = text.lines().skip_while(|line| *line != "Limits").take(22).collect();
    expect![[r#"
        Limits
        ────────────────────────────────────────
        What the run was held to.

        Result      Limit on        Measured
        ──────────  ──────────────  ────────
        fail        Database         23.8 ms
                    reads, average
        not judged  Slowest log      41.0 ms
                    write

        Result          Limit  Source
        ──────────  ─────────  ────────
        fail        ≤ 20.0 ms  AMI 2008
        not judged             AMI 2008

        Configuration
        ────────────────────────────────────────
        As given.

        Cache         256 MiB
        Lazy commits  55 %  (AMI 2008)"#]]
    .assert_eq(&limits.join("\n"));
}

#[test]
fn colour_changes_no_character() {
    let plain = render(&small(), TextOptions { width: 84, colour: false });
    let coloured = render(&small(), TextOptions { width: 84, colour: true });
    assert!(coloured.contains("\u{1b}[1;31mfail\u{1b}[0m"));
    assert!(!plain.contains('\u{1b}'));
    let stripped: String = coloured
        .split('\u{1b}')
        .enumerate()
        .map(
            |(index, part)| {
                if index == 0 { part } else { &part[part.find('m').expect("a colour ends in m") + 1..] }
            },
        )
        .collect();
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&stripped), trimmed(&plain));
}
