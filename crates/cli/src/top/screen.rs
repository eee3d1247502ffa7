//! The screen of `spindle top`: three tables, one of which has the keys.

use super::{
    rates::{ServerRates, SortKey},
    table::WordTable,
};
use ratatui::{
    Frame,
    crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Text},
    widgets::{Block, Borders, Cell, Row, Table},
};

/// Lines of a table that does not have the keys, with its frame and its head.
const SMALL_ROWS: u16 = 6;
/// Lines of a terminal below which the table with the keys is the only one.
const ALL_TABLES_LINES: u16 = 20;
/// Blanks between columns.
const GAP: u16 = 2;
const HELP: &str = " q quit  Tab table  ↑↓ rows  o operations  b bytes  l latency  n name ";

/// Tables of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenTable {
    Pools,
    Volumes,
    Drives,
}

/// The state of the screen.
pub struct Screen {
    /// The server, in the first line.
    place: String,
    has_colour: bool,
    focus: ScreenTable,
    sort: SortKey,
    /// The first row of the table with the keys.
    first: usize,
    rates: Option<ServerRates>,
    /// Instead of figures that are newer.
    problem: Option<String>,
}

/// Wish of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenAnswer {
    Nothing,
    Draw,
    Quit,
}

impl Screen {
    pub fn new(place: &str, has_colour: bool) -> Self {
        Self {
            place: place.to_owned(),
            has_colour,
            focus: ScreenTable::Volumes,
            sort: SortKey::default(),
            first: 0,
            rates: None,
            problem: None,
        }
    }

    pub fn show(&mut self, rates: ServerRates) {
        self.rates = Some(rates);
        self.problem = None;
        self.sort();
    }

    /// The figures stay, and a line says that they are old.
    pub fn show_problem(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// Does what a key, or another size of the terminal, asks for.
    pub fn take(&mut self, event: &Event) -> ScreenAnswer {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
            return if matches!(event, Event::Resize(..)) {
                ScreenAnswer::Draw
            } else {
                ScreenAnswer::Nothing
            };
        };
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return ScreenAnswer::Quit,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return ScreenAnswer::Quit,
            KeyCode::Tab => {
                self.focus = match self.focus {
                    ScreenTable::Pools => ScreenTable::Volumes,
                    ScreenTable::Volumes => ScreenTable::Drives,
                    ScreenTable::Drives => ScreenTable::Pools,
                };
                self.first = 0;
            }
            KeyCode::Char('o') => self.sort_by(SortKey::Operations),
            KeyCode::Char('b') => self.sort_by(SortKey::Bytes),
            KeyCode::Char('l') => self.sort_by(SortKey::Latency),
            KeyCode::Char('n') => self.sort_by(SortKey::Name),
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first += 10,
            KeyCode::PageUp => self.first = self.first.saturating_sub(10),
            KeyCode::Home => self.first = 0,
            _ => return ScreenAnswer::Nothing,
        }
        ScreenAnswer::Draw
    }

    fn sort_by(&mut self, key: SortKey) {
        self.sort = key;
        self.first = 0;
        self.sort();
    }

    fn sort(&mut self) {
        if let Some(rates) = &mut self.rates {
            // By name first: rows that are equal stay in this order.
            rates.pools.sort_by(|one, other| one.name.cmp(&other.name));
            for rows in [&mut rates.volumes, &mut rates.drives] {
                rows.sort_by(|one, other| (&one.pool, &one.name).cmp(&(&other.pool, &other.name)));
            }
            rates.sort(self.sort);
        }
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let small_rows = if frame.area().height < ALL_TABLES_LINES { 0 } else { SMALL_ROWS };
        let height =
            |table| if self.focus == table { Constraint::Min(4) } else { Constraint::Max(small_rows) };
        let [head, pools, volumes, drives, foot] = Layout::vertical([
            Constraint::Length(1),
            height(ScreenTable::Pools),
            height(ScreenTable::Volumes),
            height(ScreenTable::Drives),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let title = format!(" spindle top: {}, by {}", self.place, self.sort.word());
        frame.render_widget(Line::styled(title, self.style(Color::Reset, Modifier::BOLD)), head);
        let foot_line = match &self.problem {
            Some(problem) => Line::styled(format!(" {problem}"), self.style(Color::Red, Modifier::BOLD)),
            None => Line::from(HELP),
        };
        frame.render_widget(foot_line, foot);
        let Some(rates) = &self.rates else {
            frame.render_widget(Line::from(" waiting for the second reading"), volumes);
            return;
        };
        let tables = [
            (ScreenTable::Pools, WordTable::of_pools(rates), pools),
            (ScreenTable::Volumes, WordTable::of_volumes(rates), volumes),
            (ScreenTable::Drives, WordTable::of_drives(rates), drives),
        ];
        for (table, words, area) in tables {
            let mut first = 0;
            if self.focus == table {
                // The last page stays full.
                let visible = usize::from(area.height.saturating_sub(3));
                self.first = self.first.min(words.rows.len().saturating_sub(visible));
                first = self.first;
            }
            self.draw_table(frame, (&words, self.focus == table), area, first);
        }
    }

    /// Columns that do not fit as a whole are left out: a figure without its first digits would be another one.
    fn draw_table(
        &self,
        frame: &mut Frame<'_>,
        (words, is_focus): (&WordTable, bool),
        area: Rect,
        first: usize,
    ) {
        let mut widths: Vec<u16> =
            words.widths().into_iter().map(|width| u16::try_from(width).unwrap_or(u16::MAX)).collect();
        let (all, mut room) = (widths.len(), (area.width + GAP).saturating_sub(2));
        let fitting = widths.iter().take_while(|width| {
            let needed = width.saturating_add(GAP);
            let fits = needed <= room;
            room = room.saturating_sub(needed);
            fits
        });
        let columns = fitting.count();
        widths.truncate(columns);
        let cell = |column: usize, text: &str| {
            let alignment = if column < words.names { Alignment::Left } else { Alignment::Right };
            Cell::from(Text::from(text.to_owned()).alignment(alignment))
        };
        let head = words.head.iter().take(columns).enumerate().map(|(column, text)| cell(column, text));
        let row = |row: &super::table::ScreenRow| {
            let style = if row.is_bad { self.style(Color::Red, Modifier::BOLD) } else { Style::new() };
            let cells = row.cells.iter().take(columns).enumerate();
            Row::new(cells.map(|(column, text)| cell(column, text))).style(style)
        };
        let rows = words.rows.iter().skip(first).map(row);
        let (count, visible) = (words.rows.len(), usize::from(area.height.saturating_sub(3)));
        let shown = match count > visible && visible > 0 {
            true => format!("{} to {} of {count}", first + 1, (first + visible).min(count)),
            false => count.to_string(),
        };
        let hidden = match all - columns {
            0 => String::new(),
            1 => ", 1 column more on a wider terminal".to_owned(),
            hidden => format!(", {hidden} columns more on a wider terminal"),
        };
        let title = format!(" {}: {shown}{hidden} ", words.title);
        let border = if is_focus { self.style(Color::Cyan, Modifier::BOLD) } else { Style::new() };
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(self.style(Color::Reset, Modifier::BOLD)))
            .column_spacing(GAP)
            .block(Block::new().borders(Borders::ALL).border_style(border).title(title));
        frame.render_widget(table, area);
    }

    /// Bold goes without colour, too.
    fn style(&self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.has_colour { style.fg(colour) } else { style }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::{DeviceRates, IoRates, PoolRates};
    use expect_test::{Expect, expect};
    use ratatui::{Terminal, backend::TestBackend};

    fn rates() -> ServerRates {
        let io = |reads: f64, milliseconds| IoRates {
            reads_per_second: reads,
            writes_per_second: reads / 4.0,
            read_bytes_per_second: reads * 4096.0,
            written_bytes_per_second: reads * 1024.0,
            read_milliseconds: (reads > 0.0).then_some(milliseconds),
            write_milliseconds: (reads > 0.0).then_some(milliseconds * 2.0),
            in_flight: (reads / 1000.0).round(),
            ..IoRates::default()
        };
        let device = |name: &str, reads, milliseconds| DeviceRates {
            pool: "mail".to_owned(),
            name: name.to_owned(),
            io: io(reads, milliseconds),
        };
        let mut bad = device("Z1X0PPLE", 900.0, 31.0);
        bad.io.errors_per_second = 2.0;
        ServerRates {
            pools: vec![
                PoolRates {
                    name: "mail".to_owned(),
                    is_up: true,
                    used_bytes: 42.0,
                    usable_bytes: 100.0,
                    nbd_clients: 2.0,
                    iscsi_sessions: 3.0,
                    stage_milliseconds: [Some(0.02), Some(0.11), Some(1.6), Some(0.03)],
                    io: io(6100.0, 1.7),
                },
                PoolRates { name: "logs".to_owned(), ..PoolRates::default() },
            ],
            volumes: (0..9)
                .map(|number| {
                    device(&format!("store-{number}"), f64::from(number) * 400.0, f64::from(9 - number))
                })
                .collect(),
            drives: vec![bad, device("Z1X0PPLF", 1100.0, 0.4)],
        }
    }

    fn drawn(screen: &mut Screen, (columns, lines): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(columns.into());
        let text = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        text.map(|line| format!("{}\n", line.trim_end())).collect()
    }

    fn key(code: KeyCode) -> Event {
        Event::Key(code.into())
    }

    #[track_caller]
    fn check(screen: &mut Screen, size: (u16, u16), expected: &Expect) {
        expected.assert_eq(&drawn(screen, size));
    }

    #[test]
    fn the_screen_shows_pools_volumes_and_drives() {
        let mut screen = Screen::new("unix:/run/spindle.sock", true);
        let drawn_empty = drawn(&mut screen, (60, 10));
        assert_eq!(
            drawn_empty.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(),
            [
                " spindle top: unix:/run/spindle.sock, by operations",
                " waiting for the second reading",
                " q quit  Tab table  ↑↓ rows  o operations  b bytes  l latenc",
            ]
        );
        screen.show(rates());
        check(
            &mut screen,
            (130, 24),
            &expect![[r#"
                 spindle top: unix:/run/spindle.sock, by operations
                ┌ Pools: 2, 1 column more on a wider terminal ───────────────────────────────────────────────────────────────────────────────────┐
                │pool  full  clients  read/s  write/s  read ms  write ms        read     written  other/s  active  queue ms  log ms  device ms   │
                │mail  42 %        5    6100     1525     1.70      3.40  23.8 MiB/s  5.96 MiB/s        0       6      0.02    0.11       1.60   │
                │logs  down        0       0        0        -         -           0           0        0       0         -       -          -   │
                │                                                                                                                                │
                └────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
                ┌ Volumes: 1 to 7 of 9 ──────────────────────────────────────────────────────────────────────────────────────────────────────────┐
                │pool  volume   read/s  write/s  read ms  write ms        read     written  other/s  active  errors/s                            │
                │mail  store-8    3200      800     1.00      2.00  12.5 MiB/s  3.12 MiB/s        0       3         0                            │
                │mail  store-7    2800      700     2.00      4.00  10.9 MiB/s  2.73 MiB/s        0       3         0                            │
                │mail  store-6    2400      600     3.00      6.00  9.38 MiB/s  2.34 MiB/s        0       2         0                            │
                │mail  store-5    2000      500     4.00      8.00  7.81 MiB/s  1.95 MiB/s        0       2         0                            │
                │mail  store-4    1600      400     5.00        10  6.25 MiB/s  1.56 MiB/s        0       2         0                            │
                │mail  store-3    1200      300     6.00        12  4.69 MiB/s  1.17 MiB/s        0       1         0                            │
                │mail  store-2     800      200     7.00        14  3.12 MiB/s   800 KiB/s        0       1         0                            │
                └────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
                ┌ Drives: 2 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┐
                │pool  drive     read/s  write/s  read ms  write ms        read     written  other/s  active  errors/s                           │
                │mail  Z1X0PPLF    1100      275     0.40      0.80  4.30 MiB/s  1.07 MiB/s        0       1         0                           │
                │mail  Z1X0PPLE     900      225       31        62  3.52 MiB/s   900 KiB/s        0       1       2.0                           │
                │                                                                                                                                │
                └────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
                 q quit  Tab table  ↑↓ rows  o operations  b bytes  l latency  n name
            "#]],
        );
    }

    #[test]
    fn keys_sort_scroll_and_change_the_table_also_on_a_small_terminal() {
        let mut screen = Screen::new("127.0.0.1:7780", false);
        screen.show(rates());
        for code in [KeyCode::Char('l'), KeyCode::PageDown] {
            assert_eq!(screen.take(&key(code)), ScreenAnswer::Draw);
        }
        screen.show_problem("the server does not answer".to_owned());
        check(
            &mut screen,
            (80, 20),
            &expect![[r#"
                 spindle top: 127.0.0.1:7780, by latency
                ┌ Pools: 2, 7 columns more on a wider terminal ────────────────────────────────┐
                │pool  full  clients  read/s  write/s  read ms  write ms        read           │
                │mail  42 %        5    6100     1525     1.70      3.40  23.8 MiB/s           │
                │logs  down        0       0        0        -         -           0           │
                │                                                                              │
                └──────────────────────────────────────────────────────────────────────────────┘
                ┌ Volumes: 7 to 9 of 9, 3 columns more on a wider terminal ────────────────────┐
                │pool  volume   read/s  write/s  read ms  write ms        read     written     │
                │mail  store-7    2800      700     2.00      4.00  10.9 MiB/s  2.73 MiB/s     │
                │mail  store-8    3200      800     1.00      2.00  12.5 MiB/s  3.12 MiB/s     │
                │mail  store-0       0        0        -         -           0           0     │
                └──────────────────────────────────────────────────────────────────────────────┘
                ┌ Drives: 2, 3 columns more on a wider terminal ───────────────────────────────┐
                │pool  drive     read/s  write/s  read ms  write ms        read     written    │
                │mail  Z1X0PPLE     900      225       31        62  3.52 MiB/s   900 KiB/s    │
                │mail  Z1X0PPLF    1100      275     0.40      0.80  4.30 MiB/s  1.07 MiB/s    │
                │                                                                              │
                └──────────────────────────────────────────────────────────────────────────────┘
                 the server does not answer
            "#]],
        );
        assert_eq!(screen.take(&key(KeyCode::Tab)), ScreenAnswer::Draw);
        assert_eq!(screen.take(&Event::Resize(40, 12)), ScreenAnswer::Draw);
        check(
            &mut screen,
            (40, 12),
            &expect![[r#"
             spindle top: 127.0.0.1:7780, by latency
            ┌ Drives: 2, 7 columns more on a wider ┐
            │pool  drive     read/s  write/s       │
            │mail  Z1X0PPLE     900      225       │
            │mail  Z1X0PPLF    1100      275       │
            │                                      │
            │                                      │
            │                                      │
            │                                      │
            │                                      │
            └──────────────────────────────────────┘
             the server does not answer
        "#]],
        );
        assert_eq!(screen.take(&key(KeyCode::Char('x'))), ScreenAnswer::Nothing);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for quit in [key(KeyCode::Char('q')), key(KeyCode::Esc), Event::Key(interrupt)] {
            assert_eq!(screen.take(&quit), ScreenAnswer::Quit);
        }
        // However small, nothing panics.
        for size in [(1, 1), (3, 2), (20, 3), (200, 60)] {
            drawn(&mut screen, size);
        }
    }

    #[test]
    fn without_colour_nothing_is_coloured() {
        for has_colour in [false, true] {
            let mut screen = Screen::new("here", has_colour);
            screen.show(rates());
            let mut terminal = Terminal::new(TestBackend::new(120, 30)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
            let is_coloured =
                terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset);
            assert_eq!(is_coloured, has_colour);
        }
    }
}
