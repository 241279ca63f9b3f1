//! The form of the pairs in a pool, chosen once when the pool is made.

use crate::ParseError;

/// The form of the pairs in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Form {
    /// Every key has `key_bytes` bytes and every value `value_bytes`.
    Fixed {
        /// Length of every key. Unit: bytes.
        key_bytes: u32,
        /// Length of every value. Unit: bytes.
        value_bytes: u32,
    },
    /// Keys and values are byte strings, each of its own length.
    Variable,
}

impl Form {
    /// 8-byte keys and 8-byte values, the form with a path without slices: [`crate::WordTable`].
    pub const WORDS: Form = Form::Fixed { key_bytes: 8, value_bytes: 8 };

    /// 16-byte keys and 16-byte values.
    pub const DOUBLE_WORDS: Form = Form::Fixed { key_bytes: 16, value_bytes: 16 };

    /// Returns the number by which the pool's header names the form.
    pub const fn code(self) -> u64 {
        match self {
            Form::Fixed { key_bytes, value_bytes } => (key_bytes as u64) << 32 | value_bytes as u64,
            Form::Variable => 0,
        }
    }

    /// Returns the form that a pool's header names.
    pub const fn from_code(code: u64) -> Form {
        match code {
            0 => Form::Variable,
            _ => Form::Fixed { key_bytes: (code >> 32) as u32, value_bytes: code as u32 },
        }
    }
}

impl core::fmt::Display for Form {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Form::Fixed { key_bytes, value_bytes } => write!(f, "{key_bytes}/{value_bytes}"),
            Form::Variable => f.write_str("variable"),
        }
    }
}

impl core::str::FromStr for Form {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || {
            ParseError(format!("'{text}' is no form of pairs; use '8/8', '16/16' or 'variable'"))
        };
        if text == "variable" {
            return Ok(Form::Variable);
        }
        let (key, value) = text.split_once('/').ok_or_else(wrong)?;
        let key_bytes = key.parse().map_err(|_| wrong())?;
        let value_bytes = value.parse().map_err(|_| wrong())?;
        if key_bytes == 0 {
            return Err(wrong());
        }
        Ok(Form::Fixed { key_bytes, value_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_survives_its_code_and_its_text() {
        // Fails if a form were stored or printed as another one.
        for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
            assert_eq!(Form::from_code(form.code()), form);
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        assert!("8".parse::<Form>().is_err() && "0/8".parse::<Form>().is_err());
    }
}
