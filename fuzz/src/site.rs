//! Site files, and what pools keep of them.

use array::format::{PoolId, RowKey, SiteId, WallNanoseconds, row::SiteDocument};
use control::{
    recovery::PoolDocument,
    site::{SiteChanges, SiteContext, WantedSite, changes::KnownSite},
};
use plan::site::{Site, template};

/// Whatever is read is written again as the same, and is wanted or refused.
pub fn check(text: &str) {
    let Ok(site) = Site::from_toml(text) else { return };
    assert_eq!(Site::from_toml(&site.to_toml()).as_ref(), Ok(&site));
    let context = SiteContext { folder: "/site".into(), state: "/state".into(), site: None };
    let Ok(wanted) = WantedSite::described(&site, &context) else { return };
    let changes = SiteChanges::between(&KnownSite::default(), &wanted, &[]);
    let changes = changes.expect("nothing is there that could be lost");
    changes.shown().iter().for_each(|change| assert!(!change.to_string().is_empty()));
}

/// The document of a site in a pool: the bytes as the only part that counts, and as the text in it.
pub fn check_document(bytes: &[u8]) {
    let pool = PoolId([1; 16]);
    if let Ok(document) = PoolDocument::decode(bytes, pool) {
        assert_eq!(PoolDocument::decode(&document.encode(), pool).as_ref(), Ok(&document));
    }
    // Rows of lengths that the input chooses: key, length, bytes.
    let mut rows = Vec::new();
    let mut rest = bytes;
    while let [set, index, low, high, more @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (row, behind) = more.split_at(length);
        let key = match (set, index) {
            (0, 0) => RowKey::SITE_HEAD,
            _ => RowKey::of_site_part(u64::from(*set), u64::from(*index)),
        };
        rows.push((key, row));
        rest = behind;
    }
    if let Ok(Some(document)) = SiteDocument::of_rows(rows) {
        let again = document.rows(1);
        let again = SiteDocument::of_rows(again.iter().map(|(key, row)| (*key, row.as_slice())));
        assert_eq!(again, Ok(Some(document)));
    }
}

/// Seeds of documents: a text, and its rows.
pub fn document_seeds() -> [(&'static str, Vec<u8>); 2] {
    let site = Site::from_toml("[[group]]\nname = 'mail'\n").expect("a site");
    let (group, secrets) = ("mail".to_owned(), Vec::new());
    let text = PoolDocument { pool: PoolId([1; 16]), group, key: None, secrets, site }.encode();
    let (site, written_at) = (SiteId([2; 16]), WallNanoseconds(3));
    let document = SiteDocument { site, generation: 1, written_at, bytes: text.clone() };
    let row = |(key, row): (RowKey, Vec<u8>)| {
        let length = (row.len() as u16).to_le_bytes();
        [&[key.id as u8, key.sub as u8][..], &length, &row].concat()
    };
    [("text", text), ("rows", document.rows(1).into_iter().flat_map(row).collect())]
}

/// A file with every key, without its comments.
pub fn seed() -> String {
    let lines =
        template().lines().filter(|line| !line.starts_with("# ")).map(str::to_owned).collect::<Vec<_>>();
    lines.join("\n").replace("\n#", "\n")
}
