//! Text requests: which targets there are (SendTargets), and nothing else.
//!
//! An answer longer than what the initiator takes at once goes out in parts, each asked for by an empty request (RFC 7143, 11.10 and
//! 11.11).

use super::{
    connection::{Connection, PROTOCOL_ERROR},
    sending::StatusNumber,
};
use crate::{
    session::login::PORTAL_GROUP,
    wire::{
        frame::Frame,
        pdu::{FINAL, Header, NO_TAG, Text, TextResponse},
        text,
    },
};

/// More of the text follows (RFC 7143, 11.10.2 and 11.11.2).
const CONTINUES: u8 = 0x40;

/// The part of a text answer that is not sent yet.
pub(super) struct RestOfText {
    /// The tag by which the next part is asked for.
    transfer: u32,
    bytes: Vec<u8>,
}

impl Connection {
    /// SendTargets, or the next part of its answer.
    pub(super) fn answer_text(&self, frame: &Frame) {
        let request = Text::of(&frame.header);
        let rest = self.rest_of_text.take();
        let answer = match request.transfer.get() {
            _ if request.flags & CONTINUES != 0 => None,
            NO_TAG => text::read(&frame.data).map(|pairs| text::write(self.answers(pairs))),
            // Another tag than the last one, or a request within an answer, ends it.
            transfer => {
                rest.filter(|rest| rest.transfer == transfer && frame.data.is_empty()).map(|rest| rest.bytes)
            }
        };
        match answer {
            Some(answer) => self.send_text(&request, answer),
            None => self.reject(&frame.header, PROTOCOL_ERROR),
        }
    }

    fn answers(&self, pairs: Vec<text::Pair>) -> Vec<text::Pair> {
        let mut answers = Vec::new();
        for (key, value) in pairs {
            if key != "SendTargets" {
                answers.push((key, "NotUnderstood".to_owned()));
                continue;
            }
            let wanted = if value.is_empty() { self.target_name.clone() } else { value };
            let seen = self.targets.seen_by(&self.initiator);
            for target in seen.filter(|target| wanted == "All" || target.name.eq_ignore_ascii_case(&wanted)) {
                answers.push(("TargetName".to_owned(), target.name.clone()));
                answers.push(("TargetAddress".to_owned(), format!("{},{PORTAL_GROUP}", self.portal)));
            }
        }
        answers
    }

    /// As much of `answer` as the initiator takes at once; the rest is kept.
    fn send_text(&self, request: &Text, mut answer: Vec<u8>) {
        let rest = answer.split_off(part_bytes(&answer, self.agreed.send_bytes_max as usize));
        let is_last = rest.is_empty();
        let transfer = if is_last { NO_TAG } else { self.next_transfer() };
        let response = TextResponse {
            flags: if is_last { FINAL } else { CONTINUES },
            task: request.task,
            transfer: transfer.into(),
            ..TextResponse::empty()
        };
        self.sending.send(&response, StatusNumber::Counts, &answer);
        if !is_last {
            self.rest_of_text.replace(Some(RestOfText { transfer, bytes: rest }));
        }
    }
}

/// Bytes of the first part of a text: whole pairs, as many as there is room for. A pair longer than `room` is cut.
fn part_bytes(text: &[u8], room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    text[..room].iter().rposition(|&byte| byte == 0).map_or(room, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_behind_a_pair_where_one_fits() {
        let text = b"a=1\0bc=2\0";
        assert_eq!([9, 8, 5, 4, 3].map(|room| part_bytes(text, room)), [9, 4, 4, 4, 3]);
        assert_eq!(part_bytes(b"", 512), 0);
    }
}
