//! The fields of a form.

use crate::{page::PageProblem, visit::FormChange};
use axum::{
    extract::{Form, FromRequest, Request},
    http::StatusCode,
};
use control::web::ApiProblem;
use report::Refusal;

/// Units of sizes in forms, with their bytes.
pub(crate) const SIZE_UNITS: [(&str, u64); 3] = [("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// The fields of a form, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = PageProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, PageProblem> {
        let read = Form::<Vec<(String, String)>>::from_request(request, state).await;
        read.map(|Form(fields)| Self(fields)).map_err(|error| {
            let refusal = Refusal::new(error.body_text(), "send the form of the page");
            PageProblem(ApiProblem::new(error.status(), "bad-request", &refusal))
        })
    }
}

impl Fields {
    #[cfg(test)]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    /// A field without spaces around it; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim())
    }

    /// A field as it was sent.
    pub fn whole_text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The value of a field, or this if it is empty.
    pub fn text_or<'f>(&'f self, name: &str, usual: &'f str) -> &'f str {
        match self.text(name) {
            "" => usual,
            text => text,
        }
    }

    /// The values of a field that may come several times.
    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim())
    }

    pub fn is_checked(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    /// A size in bytes: a number, and its unit in `NAME_unit`.
    ///
    /// # Errors
    ///
    /// It is no positive number, or has no whole number of 512 bytes.
    pub fn size_bytes(&self, name: &str) -> Result<u64, ApiProblem> {
        let text = self.text(name);
        let wrong =
            || ApiProblem::bad_request(format!("{text:?} is no size"), "give a number, as 100 or 1.5");
        let unit = self.text(&format!("{name}_unit"));
        let (_, unit) = SIZE_UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(wrong)?;
        let number: f64 = text.parse().map_err(|_| wrong())?;
        let bytes = number * *unit as f64;
        if !bytes.is_finite() || bytes < 512.0 || bytes > (1u64 << 60) as f64 {
            return Err(wrong());
        }
        Ok((bytes / 512.0).round() as u64 * 512)
    }

    /// Words with spaces between them.
    pub fn words(&self, name: &str) -> Vec<String> {
        self.text(name).split_whitespace().map(str::to_owned).collect()
    }

    /// A whole number.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, ApiProblem> {
        let text = self.text(name);
        let wrong =
            |_| ApiProblem::bad_request(format!("{name}: {text:?} is no such number"), "give another one");
        text.parse().map_err(wrong)
    }

    /// Refuses what cannot be undone, unless the person has typed the name of `what`.
    ///
    /// # Errors
    ///
    /// Another name was typed, or none.
    pub fn check_typed(&self, what: &str, name: &str) -> Result<(), ApiProblem> {
        let typed = self.text("typed");
        if typed == name {
            return Ok(());
        }
        let problem = match typed {
            "" => format!("the name of the {what} was not typed"),
            typed => format!("{typed:?} is not the name of the {what}"),
        };
        let refusal = Refusal::new(problem, format!("type {name} to confirm; nothing was changed"));
        Err(ApiProblem::new(StatusCode::BAD_REQUEST, "not-confirmed", &refusal))
    }

    /// The change that the form asks for, with its own key.
    pub fn change(&self) -> FormChange<'_> {
        let field = |name| Some(self.text(name)).filter(|text| !text.is_empty());
        FormChange { key: field("key"), tag: field("tag") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_sectors_of_their_unit() {
        let size = |text, unit| Fields::of(&[("size", text), ("size_unit", unit)]).size_bytes("size").ok();
        assert_eq!(size("10", "GiB"), Some(10 << 30));
        assert_eq!(size("1.5", "MiB"), Some(3 << 19));
        assert_eq!(size("0.0006", "MiB"), Some(512));
        for (text, unit) in
            [("", "GiB"), ("0", "GiB"), ("-1", "GiB"), ("inf", "GiB"), ("1", "GB"), ("1e9", "TiB")]
        {
            assert_eq!(size(text, unit), None, "{text} {unit}");
        }
    }

    #[test]
    fn a_name_is_typed_whole() {
        let check = |typed: &str| Fields::of(&[("typed", typed)]).check_typed("volume", "mail/store").is_ok();
        assert!(check("mail/store") && check(" mail/store "));
        assert!(!check("") && !check("store") && !check("MAIL/STORE"));
        assert!(Fields::of(&[]).check_typed("volume", "mail/store").is_err());
    }
}
