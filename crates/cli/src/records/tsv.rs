//! Tab-separated records: any bytes survive.

use std::io::{self, Write};

use super::Pair;

/// Reads a line without its end. The error says what is wrong, and where in the line.
pub fn parse(line: &[u8]) -> Result<Pair, String> {
    let tab = line.iter().position(|byte| *byte == b'\t');
    let tab = tab.ok_or(match line.first() {
        Some(b'{') => "no tab; write the key, a tab and the value, or say --format jsonl",
        _ => "no tab; write the key, a tab and the value on one line",
    })?;
    Ok((unescape(&line[..tab], 1)?, unescape(&line[tab + 1..], tab + 2)?))
}

/// Replaces escapes by what they stand for; `column` is where `text` begins, counted from 1.
pub fn unescape(text: &[u8], column: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().enumerate();
    while let Some((index, byte)) = rest.next() {
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some((_, b't')) => b'\t',
            Some((_, b'n')) => b'\n',
            Some((_, b'r')) => b'\r',
            Some((_, b'\\')) => b'\\',
            _ => {
                let at = column + index;
                return Err(format!(
                    "byte {at} of the line: a backslash must be followed by t, n, r or another \
                     backslash; write \\\\ for a backslash"
                ));
            }
        });
    }
    Ok(bytes)
}

/// Writes a record and the end of its line.
pub fn write(key: &[u8], value: &[u8], out: &mut dyn Write) -> io::Result<()> {
    escape(key, out)?;
    out.write_all(b"\t")?;
    escape(value, out)?;
    out.write_all(b"\n")
}

/// Writes `bytes` with escapes.
pub fn escape(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    for piece in bytes.split_inclusive(|byte| escaped(*byte).is_some()) {
        match piece.split_last() {
            Some((last, before)) if escaped(*last).is_some() => {
                out.write_all(before)?;
                out.write_all(escaped(*last).unwrap_or_default())?;
            }
            _ => out.write_all(piece)?,
        }
    }
    Ok(())
}

fn escaped(byte: u8) -> Option<&'static [u8]> {
    match byte {
        b'\t' => Some(b"\\t"),
        b'\n' => Some(b"\\n"),
        b'\r' => Some(b"\\r"),
        b'\\' => Some(b"\\\\"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        // Fails if a byte were left unescaped that ends a field or a line, or escaped twice.
        let every: Vec<u8> = (0..=255).collect();
        for pair in [(every.clone(), every), (vec![], b"\\t\\\t\r".to_vec()), (b"k".into(), vec![])]
        {
            let mut line = Vec::new();
            write(&pair.0, &pair.1, &mut line).unwrap();
            assert_eq!(line.pop(), Some(b'\n'));
            assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
            assert_eq!(parse(&line).unwrap(), pair);
        }
    }

    #[test]
    fn a_bad_line_says_where() {
        // Fails if whoever has a long line had to look for its mistake.
        assert!(parse(b"").unwrap_err().starts_with("no tab"));
        assert!(parse(b"key value").unwrap_err().starts_with("no tab"));
        assert!(parse(b"{\"key\":").unwrap_err().ends_with("--format jsonl"));
        assert!(parse(b"k\\x\tv").unwrap_err().starts_with("byte 2 "));
        assert!(parse(b"k\tab\\").unwrap_err().starts_with("byte 5 "));
        assert_eq!(parse(b"k\ta\tb").unwrap(), (b"k".to_vec(), b"a\tb".to_vec()));
    }
}
