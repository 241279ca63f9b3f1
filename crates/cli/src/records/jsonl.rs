//! Records as JSON objects, one a line.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use super::Pair;

/// What some programs write before a text, and what is no part of JSON.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A record as it lies in a line.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

/// Reads a line without its end. The error says what is wrong, and never what the line contains.
pub fn parse(line: &[u8]) -> Result<Pair, String> {
    let no_record = |at: usize| {
        format!(
            "not a record, at byte {at} of the line; write {{\"key\":\"...\",\"value\":\"...\"}}"
        )
    };
    let object = line.trim_ascii_start();
    match object.first() {
        None => return Err("the line is blank; write one object a line".to_owned()),
        Some(b'{') => {}
        Some(_) if object.starts_with(BYTE_ORDER_MARK) => {
            return Err("the line begins with a byte order mark; remove its three bytes".to_owned());
        }
        // The parser would take an array for the fields in their order.
        Some(_) => {
            let is_tsv = line.contains(&b'\t');
            let hint = if is_tsv { ", or say --format tsv" } else { "" };
            return Err(no_record(line.len() - object.len() + 1) + hint);
        }
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| match error.classify() {
        Category::Data => no_record(error.column().max(1)),
        Category::Eof => format!(
            "invalid JSON at byte {} of the line, where it ends inside of the object; complete it",
            error.column()
        ),
        _ => {
            format!("invalid JSON at byte {} of the line; write one object a line", error.column())
        }
    })?;
    let key = field("key", line.key, line.key_hex)?;
    Ok((key, field("value", line.value, line.value_hex)?))
}

fn field(name: &str, text: Option<String>, hex: Option<String>) -> Result<Vec<u8>, String> {
    match (text, hex) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(hex)) => {
            from_hex(&hex).map_err(|what| format!("{name}_hex {what}; write two digits a byte"))
        }
        _ => Err(format!("a record has either \"{name}\" or \"{name}_hex\"; give one of them")),
    }
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |(place, byte): (usize, u8)| {
        let digit = char::from(byte).to_digit(16);
        digit.ok_or_else(|| format!("has no hexadecimal digit as byte {} of its text", place + 1))
    };
    let digits = text.bytes().enumerate().map(digit).collect::<Result<Vec<u32>, _>>()?;
    match digits.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect()),
        _ => Err(format!("has {} digits, an odd number", digits.len())),
    }
}

/// Writes a record and the end of its line.
pub fn write(key: &[u8], value: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let (key, key_hex) = text_or_hex(key);
    let (value, value_hex) = text_or_hex(value);
    serde_json::to_writer(&mut *out, &Line { key, key_hex, value, value_hex })?;
    out.write_all(b"\n")
}

fn text_or_hex(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        // Fails if bytes that are no text were replaced, or text were written as digits.
        let every: Vec<u8> = (0..=255).collect();
        let text = "ä\u{0}\"\\\n\u{2028}".as_bytes().to_vec();
        for pair in [(every, text.clone()), (text, vec![]), (vec![], b"\xff".to_vec())] {
            let mut line = Vec::new();
            write(&pair.0, &pair.1, &mut line).unwrap();
            assert_eq!(line.pop(), Some(b'\n'));
            assert!(!line.contains(&b'\n'));
            assert_eq!(parse(&line).unwrap(), pair);
        }
    }

    #[test]
    fn a_bad_line_says_where_and_what_helps() {
        // Fails if whoever has a long line had to look for its mistake, or if a file of the other
        // format, or one that was cut, were told to be written in JSON.
        for (line, part) in [
            ("[]", "not a record, at byte 1 of"),
            ("  7", "not a record, at byte 3 of"),
            ("12\tv", "--format tsv"),
            ("\u{feff}{}", "byte order mark"),
            (r#"{"key":"k","value":7}"#, "not a record, at byte 20 of"),
            (r#"{"key":"k","valu"#, "at byte 16 of the line, where it ends inside of"),
            (r#"{"key":"k" "value":"v"}"#, "invalid JSON at byte 12 of"),
            (r#"{"key":"k","value_hex":"00f"}"#, "value_hex has 3 digits, an odd number"),
            (r#"{"key_hex":"00g0","value":""}"#, "key_hex has no hexadecimal digit as byte 3 of"),
        ] {
            let message = parse(line.as_bytes()).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
    }

    #[test]
    fn a_bad_line_is_refused_without_showing_it() {
        // Fails if a line of another shape were taken for a pair, or a message showed data.
        for line in [
            "",
            "{",
            "[]",
            r#"["secret",null,"v",null]"#,
            r#" ["secret",null,"v",null]"#,
            " ",
            "{}",
            r#"{"key":"secret"}"#,
            r#"{"key":"secret","value":7}"#,
            r#"{"key":"secret","value":"a","more":"b"}"#,
            r#"{"key":"secret","key":"secret","value":"a"}"#,
            r#"{"key":"secret","key_hex":"00","value":"a"}"#,
            r#"{"key":"secret","value_hex":"0"}"#,
            r#"{"key":"secret","value_hex":"+0"}"#,
            r#"{"key":"secret","value_hex":"é0"}"#,
            r#"{"key":"secret","val"#,
            "\u{feff}{\"key\":\"secret\",\"value\":\"a\"}",
            "12\tsecret",
            "null",
            "{\"key\":\"secret\tsecret\",\"value\":\"a\"}",
            r#"{"key":"secret","value":"a"} x"#,
        ] {
            let message = parse(line.as_bytes()).unwrap_err();
            assert!(!message.contains("secret"), "{message}");
            // The first byte of a line is byte 1.
            assert!(!message.contains("byte 0"), "{message}");
        }
    }

    #[test]
    fn a_record_is_written_as_the_help_says() {
        // Fails if who compares two exports, or reads one elsewhere, found another text.
        let mut lines = Vec::new();
        write(b"\x00\xff", "\u{e9}\n".as_bytes(), &mut lines).unwrap();
        write(b"k", b"\xab\xcd", &mut lines).unwrap();
        let expected = "{\"key_hex\":\"00ff\",\"value\":\"\u{e9}\\n\"}\n\
                        {\"key\":\"k\",\"value_hex\":\"abcd\"}\n";
        assert_eq!(String::from_utf8(lines).unwrap(), expected);
        let upper = parse(br#"{"key_hex":"00FF","value":""}"#);
        assert_eq!(upper.unwrap().0, b"\x00\xff");
    }
}
