//! Formulas as text: read, computed, and shown with names or with the numbers put in.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = factor (("*" | "/") factor)*
//! factor  = number | name | name "(" sum ("," sum)* ")" | "(" sum ")"
//! ```
//!
//! `max` and `min` of two or more, `ceil` and `sqrt` are what they are everywhere; `total(…)` adds up over the tiers of users. Any other
//! name before a parenthesis is a curve.

use std::fmt::Write;

/// A formula that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Name(String),
    Call(String, Vec<Node>),
    Binary(Box<Node>, char, Box<Node>),
}

/// Values of names in a formula, in one tier of users or in none.
pub trait Names {
    /// The number called `name`; nothing if there is none.
    fn value(&self, name: &str, tier: Option<usize>) -> Option<f64>;

    /// That number with its unit, as people read it.
    fn shown(&self, name: &str, tier: Option<usize>) -> String;

    /// The curve called `name` at `place`; nothing if there is none.
    fn curve(&self, name: &str, place: f64) -> Option<f64>;

    fn tiers(&self) -> usize;
}

impl Formula {
    /// Reads a formula.
    ///
    /// # Panics
    /// If it is none: formulas are written by us, and each is computed by a test.
    pub fn read(text: &str) -> Self {
        let mut reader = Reader { text, at: 0 };
        let node = reader.sum();
        reader.skip_space();
        assert!(reader.at == text.len(), "formula {text:?}: what is at {}?", reader.at);
        Self(node)
    }

    /// Computes the value.
    ///
    /// # Panics
    /// If a name stands for nothing.
    pub fn compute(&self, names: &impl Names, tier: Option<usize>) -> f64 {
        self.0.compute(names, tier)
    }

    /// As people read it, with names: `MSR × AMS / 1024`.
    pub fn written(&self) -> String {
        let mut out = String::new();
        self.0.write(&mut out, 0, &mut |name| name.to_owned());
        out
    }

    /// The same with numbers for names: `150 × 75 / 1024`.
    pub fn put_in(&self, names: &impl Names, tier: Option<usize>) -> String {
        let mut out = String::new();
        self.0.expanded(names.tiers(), tier).write(&mut out, 0, &mut |name| match name.split_once('@') {
            Some((name, tier)) => names.shown(name, tier.parse().ok()),
            None => names.shown(name, None),
        });
        out
    }

    /// The names in it, curves among them, each once, as they come.
    pub fn names(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.0.each_name(&mut |name| {
            if !all.iter().any(|known| known == name) {
                all.push(name.to_owned());
            }
        });
        all
    }
}

impl Node {
    fn compute(&self, names: &impl Names, tier: Option<usize>) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Name(name) => {
                names.value(name, tier).unwrap_or_else(|| panic!("{name} stands for nothing"))
            }
            Self::Binary(left, operator, right) => {
                let (left, right) = (left.compute(names, tier), right.compute(names, tier));
                match operator {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ => left / right,
                }
            }
            Self::Call(name, inner) => {
                let of = |at: usize| inner[at].compute(names, tier);
                match name.as_str() {
                    "max" => (1..inner.len()).map(of).fold(of(0), f64::max),
                    "min" => (1..inner.len()).map(of).fold(of(0), f64::min),
                    // What is a whole number but for the last bit of a double is one.
                    "ceil" => (of(0) * (1.0 - 4.0 * f64::EPSILON)).ceil(),
                    "sqrt" => of(0).sqrt(),
                    "total" => (0..names.tiers()).map(|tier| inner[0].compute(names, Some(tier))).sum(),
                    curve => {
                        names.curve(curve, of(0)).unwrap_or_else(|| panic!("no curve is called {curve}"))
                    }
                }
            }
        }
    }

    /// The same with every name bound to its tier (`NU@0`), and `total` written out.
    fn expanded(&self, tiers: usize, tier: Option<usize>) -> Self {
        match (self, tier) {
            (Self::Number(_), _) | (Self::Name(_), None) => self.clone(),
            (Self::Name(name), Some(tier)) => Self::Name(format!("{name}@{tier}")),
            (Self::Binary(left, operator, right), _) => Self::Binary(
                Box::new(left.expanded(tiers, tier)),
                *operator,
                Box::new(right.expanded(tiers, tier)),
            ),
            (Self::Call(name, inner), _) if name == "total" => {
                let each = (0..tiers).map(|tier| inner[0].expanded(tiers, Some(tier)));
                each.reduce(|sum, one| Self::Binary(Box::new(sum), '+', Box::new(one)))
                    .expect("there is a tier of users")
            }
            (Self::Call(name, inner), _) => {
                Self::Call(name.clone(), inner.iter().map(|one| one.expanded(tiers, tier)).collect())
            }
        }
    }

    fn write(&self, out: &mut String, around: u8, name_as: &mut dyn FnMut(&str) -> String) {
        match self {
            Self::Number(number) => write!(out, "{number}").expect("a string takes all"),
            Self::Name(name) => out.push_str(&name_as(name)),
            Self::Call(name, inner) => {
                let _ = write!(out, "{name}(");
                for (index, one) in inner.iter().enumerate() {
                    if index > 0 {
                        out.push_str("; ");
                    }
                    one.write(out, 0, name_as);
                }
                out.push(')');
            }
            Self::Binary(left, operator, right) => {
                let (binds, sign) = match operator {
                    '+' => (1, "+"),
                    '-' => (1, "−"),
                    '*' => (2, "×"),
                    _ => (2, "/"),
                };
                let bracketed = binds < around;
                if bracketed {
                    out.push('(');
                }
                left.write(out, binds, name_as);
                let _ = write!(out, " {sign} ");
                // a − (b + c) and a / (b × c) need theirs.
                let right_binds = if matches!(operator, '-' | '/') { binds + 1 } else { binds };
                right.write(out, right_binds, name_as);
                if bracketed {
                    out.push(')');
                }
            }
        }
    }

    fn each_name(&self, seen: &mut dyn FnMut(&str)) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => seen(name),
            Self::Binary(left, _, right) => {
                left.each_name(seen);
                right.each_name(seen);
            }
            Self::Call(name, inner) => {
                inner.iter().for_each(|one| one.each_name(seen));
                if !["max", "min", "ceil", "sqrt", "total"].contains(&name.as_str()) {
                    seen(name);
                }
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn sum(&mut self) -> Node {
        let mut left = self.product();
        while let Some(operator) = self.one_of(&['+', '-']) {
            left = Node::Binary(Box::new(left), operator, Box::new(self.product()));
        }
        left
    }

    fn product(&mut self) -> Node {
        let mut left = self.factor();
        while let Some(operator) = self.one_of(&['*', '/']) {
            left = Node::Binary(Box::new(left), operator, Box::new(self.factor()));
        }
        left
    }

    fn factor(&mut self) -> Node {
        if self.one_of(&['(']).is_some() {
            let inner = self.sum();
            self.expect(')');
            return inner;
        }
        let word = self.word();
        assert!(!word.is_empty(), "formula {:?}: nothing at {}", self.text, self.at);
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return Node::Number(word.parse().unwrap_or_else(|_| panic!("formula {:?}: {word}", self.text)));
        }
        if self.one_of(&['(']).is_none() {
            return Node::Name(word);
        }
        let mut inner = vec![self.sum()];
        while self.one_of(&[',']).is_some() {
            inner.push(self.sum());
        }
        self.expect(')');
        let is_of_several = matches!(word.as_str(), "max" | "min");
        assert!((inner.len() > 1) == is_of_several, "formula {:?}: {word} of {}", self.text, inner.len());
        Node::Call(word, inner)
    }

    fn word(&mut self) -> String {
        self.skip_space();
        let rest = &self.text[self.at..];
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn one_of(&mut self, wanted: &[char]) -> Option<char> {
        self.skip_space();
        let next = self.text[self.at..].chars().next().filter(|next| wanted.contains(next))?;
        self.at += 1;
        Some(next)
    }

    fn expect(&mut self, wanted: char) {
        assert!(self.one_of(&[wanted]).is_some(), "formula {:?}: no {wanted} at {}", self.text, self.at);
    }

    fn skip_space(&mut self) {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tiers: `n` is 2 and 3 there; `k` is 10 everywhere; the curve `twice` doubles.
    struct Two;

    impl Names for Two {
        fn value(&self, name: &str, tier: Option<usize>) -> Option<f64> {
            match (name, tier) {
                ("n", Some(tier)) => Some([2.0, 3.0][tier]),
                ("k", _) => Some(10.0),
                _ => None,
            }
        }

        fn shown(&self, name: &str, tier: Option<usize>) -> String {
            crate::units::shown(self.value(name, tier).expect("it is there"))
        }

        fn curve(&self, name: &str, place: f64) -> Option<f64> {
            (name == "twice").then_some(2.0 * place)
        }

        fn tiers(&self) -> usize {
            2
        }
    }

    #[track_caller]
    fn check(text: &str, value: f64, written: &str, put_in: &str) {
        let formula = Formula::read(text);
        assert_eq!(formula.compute(&Two, None), value, "{text}");
        assert_eq!(formula.written(), written);
        assert_eq!(formula.put_in(&Two, None), put_in);
    }

    #[test]
    fn formulas_are_computed_as_they_are_written() {
        check("1 + k * 2", 21.0, "1 + k × 2", "1 + 10 × 2");
        check("(1 + k) * 2", 22.0, "(1 + k) × 2", "(1 + 10) × 2");
        check("k - (k - 1) - 2", -1.0, "k − (k − 1) − 2", "10 − (10 − 1) − 2");
        check("k / (5 * 2)", 1.0, "k / (5 × 2)", "10 / (5 × 2)");
        check("k / 5 / 2", 1.0, "k / 5 / 2", "10 / 5 / 2");
        check("ceil(k / 3)", 4.0, "ceil(k / 3)", "ceil(10 / 3)");
        check("max(twice(k), 3)", 20.0, "max(twice(k); 3)", "max(twice(10); 3)");
        check("total(n * k) * 0.5", 25.0, "total(n × k) × 0.5", "(2 × 10 + 3 × 10) × 0.5");
    }

    #[test]
    fn what_is_whole_but_for_the_last_bit_is_not_rounded_up() {
        assert_eq!(Formula::read("ceil(k * 1.1 * 100)").compute(&Two, None), 1100.0);
    }

    #[test]
    fn names_are_found_once_with_the_curves() {
        assert_eq!(Formula::read("twice(k) + total(n * k)").names(), ["k", "twice", "n"]);
    }
}
