//! Lists of objects: the few elements of the answer to `ListObjectsV2` that a vault needs.

use crate::{blob_id::BlobId, store::VaultFile};

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Page {
    /// Objects whose names end with a SHA-256.
    pub files: Vec<VaultFile>,
    /// Of the next page.
    pub token: Option<String>,
}

impl S3Page {
    /// `None`: it is no such list.
    pub fn decode(text: &str) -> Option<Self> {
        element(text, "ListBucketResult")?;
        let mut page = Self::default();
        for object in text.split("<Contents>").skip(1) {
            let object = object.split_once("</Contents>")?.0;
            let (key, size) = (element(object, "Key")?, element(object, "Size")?);
            let name = key.rsplit('/').next().unwrap_or(key);
            if BlobId::parse(name).is_some() {
                page.files.push(VaultFile { name: name.to_owned(), bytes: size.trim().parse().ok()? });
            }
        }
        if element(text, "IsTruncated").is_some_and(|word| word.trim() == "true") {
            page.token = Some(unescaped(element(text, "NextContinuationToken")?));
        }
        Some(page)
    }
}

/// The content of the first element of that name.
pub fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let start = text.find(&format!("<{name}"))?;
    let rest = &text[start + name.len() + 1..];
    let content = rest.split_once('>')?.1;
    Some(content.split_once(&format!("</{name}>"))?.0)
}

fn unescaped(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_objects_of_the_vault_and_the_next_token() {
        let name = "01".repeat(32);
        let text = format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated>\
             <Contents><Key>a/data/01/{name}</Key><Size>7</Size></Contents><Contents><Key>a/data/other</Key><Size>1</Size>\
             </Contents><NextContinuationToken>a&amp;b</NextContinuationToken></ListBucketResult>"
        );
        let files = vec![VaultFile { name, bytes: 7 }];
        assert_eq!(S3Page::decode(&text), Some(S3Page { files, token: Some("a&b".into()) }));
        let empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert_eq!(S3Page::decode(empty), Some(S3Page::default()));
        for damaged in ["", "<Error></Error>", &text.replace("<Size>7", "<Size>x"), &text[..200]] {
            assert_eq!(S3Page::decode(damaged), None, "{damaged}");
        }
    }
}
