//! A link that was measured: its figures in a site, and in the text of a site file.

use super::{Link, Replication, Site, SiteError};

/// Figures of the link that replication uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLink {
    /// Round trip of the idle line.
    pub rtt_ms: f64,
    /// Rate of the slowest path, in the slower direction.
    pub mbit_each: f64,
    /// Paths that were measured, each alone.
    pub paths: u32,
}

/// Name of a link that a site gets because it has none.
const NEW_NAME: &str = "link";

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl MeasuredLink {
    /// `site` with these figures in the link that its replication uses. A site without a link, or without replication, gets
    /// one: a synchronous one.
    ///
    /// # Errors
    ///
    /// The site has several links, and does not say which one replication uses.
    pub fn put_into(&self, mut site: Site) -> Result<Site, SiteError> {
        let index = self.link_of(&site)?;
        if site.links.is_empty() {
            site.links.push(Link { name: NEW_NAME.to_owned(), ..Link::default() });
        }
        let replication = site.replication.get_or_insert_with(Replication::default);
        if replication.kind.is_empty() {
            "synchronous".clone_into(&mut replication.kind);
        }
        self.set(&mut site.links[index]);
        Ok(site)
    }

    fn set(&self, link: &mut Link) {
        (link.rtt_ms, link.rtt_measured) = (Some(rounded(self.rtt_ms)), Some(true));
        link.mbit_each = Some(rounded(self.mbit_each));
        // One address says nothing of the lines below it.
        link.paths = if self.paths > 1 { Some(self.paths) } else { link.paths.or(Some(1)) };
    }

    /// Index of the link that replication uses; 0 if there is none yet.
    ///
    /// # Errors
    ///
    /// The site has several links, and does not say which one replication uses.
    pub fn link_of(&self, site: &Site) -> Result<usize, SiteError> {
        let meant = site.replication.as_ref().map_or("", |replication| replication.link.as_str());
        match site.links.iter().position(|link| link.name == meant) {
            Some(index) => Ok(index),
            None if site.links.len() <= 1 => Ok(0),
            None => Err(SiteError::whole(
                "there are several links, and [replication] does not say which one it uses: link = \"NAME\""
                    .to_owned(),
            )),
        }
    }

    /// The text of a site file with these figures in the link that its replication uses, and everything else as it was; and
    /// the changes, a line each.
    ///
    /// # Errors
    ///
    /// The file is no site; it does not say which link is meant; or its links are not written as `[[link]]`.
    pub fn write_into(&self, text: &str) -> Result<(String, Vec<String>), SiteError> {
        let site = Site::from_toml(text)?;
        let index = self.link_of(&site)?;
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        let mut changes = Vec::new();
        let mut expected = site;
        if expected.links.is_empty() {
            if lines.last().is_some_and(|line| !line.ends_with('\n')) {
                lines.push("\n".to_owned());
            }
            lines.extend(["\n[[link]]\n".to_owned(), format!("name = \"{NEW_NAME}\"\n")]);
            expected.links.push(Link { name: NEW_NAME.to_owned(), ..Link::default() });
            changes.push(format!("[[link]] name = \"{NEW_NAME}\": new"));
        }
        let name = expected.links[index].name.clone();
        let before = expected.links[index].clone();
        self.set(&mut expected.links[index]);
        let after = &expected.links[index];
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let wanted = [
            (
                "paths",
                before.paths.map(|paths| paths.to_string()),
                after.paths.map(|paths| paths.to_string()),
            ),
            ("mbit_each", number(before.mbit_each), number(after.mbit_each)),
            ("rtt_ms", number(before.rtt_ms), number(after.rtt_ms)),
            (
                "rtt_measured",
                before.rtt_measured.map(|is| is.to_string()),
                after.rtt_measured.map(|is| is.to_string()),
            ),
        ];
        for (key, before, after) in wanted {
            let after = after.expect("each figure is set");
            if before.as_ref() == Some(&after) {
                continue;
            }
            set_key(&mut lines, index, (key, &after));
            let was = before.map_or_else(|| "new".to_owned(), |before| format!("was {before}"));
            changes.push(format!("[[link]] {name:?}: {key} = {after} ({was})"));
        }
        let changed = lines.concat();
        match Site::from_toml(&changed) {
            Ok(site) if site == expected => Ok((changed, changes)),
            _ => Err(SiteError::whole(
                "its links are not written as [[link]] with a key a line: write the figures by hand"
                    .to_owned(),
            )),
        }
    }
}

/// Sets a key of the link with an index, in the lines of a file. The caller reads the result again.
fn set_key(lines: &mut Vec<String>, index: usize, (key, value): (&str, &str)) {
    let is_table = |line: &String| line.trim_start().starts_with('[');
    let is_link = |line: &String| {
        let head = line.split('#').next().unwrap_or_default();
        head.split_whitespace().collect::<String>() == "[[link]]"
    };
    let Some(head) = lines.iter().enumerate().filter(|(_, line)| is_link(line)).map(|(at, _)| at).nth(index)
    else {
        return;
    };
    let end = lines[head + 1..].iter().position(is_table).map_or(lines.len(), |at| head + 1 + at);
    let is_of_key =
        |line: &String| line.split_once('=').is_some_and(|(name, _)| name.trim().trim_matches('"') == key);
    if let Some(at) = lines[head..end].iter().position(is_of_key) {
        let line = &lines[head + at];
        let (name, old) = line.split_once('=').expect("it has the key");
        // What follows the value stays: a remark, and the end of the line.
        let rest = old.trim_start().find(|char: char| char == '#' || char.is_whitespace());
        let rest = rest.map_or("", |at| &old.trim_start()[at..]);
        lines[head + at] = format!("{name}= {value}{rest}");
        return;
    }
    let is_said = |line: &String| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let last = lines[head..end].iter().rposition(is_said).unwrap_or(0) + head;
    if !lines[last].ends_with('\n') {
        lines[last].push('\n');
    }
    lines.insert(last + 1, format!("{key} = {value}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: MeasuredLink = MeasuredLink { rtt_ms: 24.123_45, mbit_each: 39.5, paths: 1 };

    #[test]
    fn figures_go_into_their_keys_and_all_else_stays() {
        let text = "# mine\nname = 'mail'\n[replication]\nlink = 'b' # the second\n\n[[link]]\nname = 'a'\nrtt_ms = 1\n\n\
                    [[link]] # far\nname = 'b'\npaths = 2\n  rtt_ms   = 7 # by the provider\n\n# the end\n[users]\nmailboxes = 5\n";
        let (changed, said) = MEASURED.write_into(text).unwrap();
        let expected = text
            .replace("  rtt_ms   = 7 # by", "  rtt_ms   = 24.123 # by")
            .replace("\n\n# the end", "\nrtt_measured = true\nmbit_each = 39.5\n\n# the end");
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&changed), lines(&expected), "{changed}");
        assert!(changed.contains("name = 'a'\nrtt_ms = 1\n\n[[link]] # far"), "{changed}");
        let told = [
            "[[link]] \"b\": mbit_each = 39.5 (new)",
            "[[link]] \"b\": rtt_ms = 24.123 (was 7)",
            "[[link]] \"b\": rtt_measured = true (new)",
        ];
        assert_eq!(said, told);
        assert_eq!(MEASURED.write_into(&changed).unwrap(), (changed.clone(), Vec::new()), "twice is once");
    }

    #[test]
    fn a_site_without_a_link_gets_one_and_what_is_not_plain_is_refused() {
        let (changed, said) = MEASURED.write_into("name = 'mail'").unwrap();
        assert!(changed.starts_with("name = 'mail'\n\n[[link]]\nname = \"link\"\n"), "{changed}");
        assert_eq!(said.len(), 5, "{said:?}");
        let refused = |text: &str| MEASURED.write_into(text).unwrap_err().to_string();
        assert!(refused("link = [{ name = 'a' }]").contains("write the figures by hand"));
        assert!(refused("[[link]]\nname = 'a'\n[[link]]\nname = 'b'\n").contains("several links"));
        assert!(refused("nmae = 'x'").contains("did you mean"));
    }
}
