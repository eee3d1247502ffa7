//! The rows of a bench as a table for the terminal, and what must be known to read them below it.

use super::row::{Row, figure};

const HEADINGS: [&str; 8] = ["what", "unit", "ours", "peer", "ratio", "95 %", "goal", "met"];
/// Columns of figures, which stand right.
const RIGHT: [bool; 8] = [false, false, true, true, true, true, true, false];

/// The table, with a line for each note.
pub fn render(rows: &[Row]) -> String {
    let mut lines: Vec<[String; 8]> = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        text.push_str(&laid_out(line, &widths));
        if number == 0 {
            let rule: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
            text.push_str(&(rule.join("  ") + "\n"));
        }
    }
    let mut notes: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        if !notes.contains(&row.note.as_str()) {
            notes.push(&row.note);
        }
    }
    if !notes.is_empty() {
        text.push('\n');
        notes.iter().for_each(|note| text.push_str(&format!("· {note}\n")));
    }
    text
}

fn cells(row: &Row) -> [String; 8] {
    let shown = |value: Option<f64>| value.map(figure).unwrap_or_default();
    [
        row.what.clone(),
        row.unit.to_owned(),
        shown(row.ours_median()),
        shown(row.peer_median()),
        row.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        row.ratio_interval().map(|(low, high)| format!("{low:.2}–{high:.2}")).unwrap_or_default(),
        row.goal_words(),
        row.met().map_or("", |met| if met { "yes" } else { "NO" }).to_owned(),
    ]
}

fn laid_out(line: &[String; 8], widths: &[usize]) -> String {
    let cells = line.iter().zip(widths).zip(RIGHT).map(|((cell, &width), right)| match right {
        true => format!("{cell:>width$}"),
        false => format!("{cell:<width$}"),
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::{
        super::row::{Goal, Measurement},
        *,
    };
    use expect_test::expect;
    use serde_json::Value;

    #[test]
    fn a_table_shows_both_sides_their_ratio_and_the_goal() {
        let runs = |values: &[f64]| {
            values.iter().map(|&value| Measurement { value, raw: Value::Null }).collect::<Vec<_>>()
        };
        let rows = [
            Row {
                ours: runs(&[12_345.6, 12_300.0, 12_100.0, 12_345.6, 12_345.6, 12_400.0]),
                peer: runs(&[13_000.0; 6]),
                ..Row::new("page reads, 4 KiB, depth 1", "/s", Goal::OfPeer(0.9), "")
            },
            Row {
                ours: runs(&[1.25]),
                ..Row::new("verification, cached", "GB/s", Goal::AtLeast(2.5), "per core")
            },
            Row { ours: runs(&[70.55]), ..Row::new("transaction", "µs", Goal::None, "per core") },
        ];
        expect![[r#"
            what                        unit   ours   peer  ratio       95 %            goal  met
            ──────────────────────────  ────  ─────  ─────  ─────  ─────────  ──────────────  ───
            page reads, 4 KiB, depth 1  /s    12346  13000   0.95  0.93–0.95  ≥ 0.90 of peer  yes
            verification, cached        GB/s   1.25                                   ≥ 2.50  NO
            transaction                 µs     70.5

            · per core
        "#]]
        .assert_eq(&render(&rows));
    }
}
