//! The types of a profile's parameters, and the macro that declares a struct of them.

use toml::Value;

/// A value that a profile may hold.
pub(super) trait Parameter: Sized {
    /// Reads the value, or says what it must be.
    fn read(value: &Value, low: f64, high: f64) -> Result<Self, String>;

    /// Returns the value as it is written in a profile.
    fn show(&self) -> String;
}

impl Parameter for u64 {
    fn read(value: &Value, low: f64, high: f64) -> Result<Self, String> {
        let inside = |number: &i64| (low..=high).contains(&(*number as f64));
        let number = value.as_integer().filter(inside);
        number.map(|number| number as u64).ok_or(format!("a whole number, {low} to {high}"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Parameter for f64 {
    fn read(value: &Value, low: f64, high: f64) -> Result<Self, String> {
        let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
        let number = number.filter(|number| (low..=high).contains(number));
        number.ok_or(format!("a number, {low} to {high}"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Declares a closed choice and the words for it in a profile.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident {
        $( $(#[$case_meta:meta])* $case:ident = $word:literal, )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$case_meta])* $case, )* }

        impl $crate::profile::value::Parameter for $name {
            fn read(value: &toml::Value, _low: f64, _high: f64) -> Result<Self, String> {
                match value.as_str() {
                    $( Some($word) => Ok($name::$case), )*
                    _ => Err(format!("one of {}", [$( $word ),*].join(", "))),
                }
            }

            fn show(&self) -> String {
                match self { $( $name::$case => $word, )* }.to_string()
            }
        }
    };
}

/// Declares a device as a struct of parameters, each with its unit and range.
macro_rules! parameters {
    ($(#[$meta:meta])* $name:ident {
        $( $(#[$field_meta:meta])*
           $field:ident: $kind:ty, $unit:literal, $low:literal, $high:literal; )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* #[doc = concat!("\n\nUnit: ", $unit)] pub $field: $kind, )*
        }

        impl $name {
            pub(super) fn read(
                entries: &mut $crate::profile::entries::Entries,
            ) -> $crate::Result<Self> {
                let name = $name {
                    $( $field: entries.parameter(
                        stringify!($field), $unit, $low as f64, $high as f64,
                    )?, )*
                };
                Ok(name)
            }

            pub(super) fn rows(&self) -> Vec<(&'static str, String, &'static str)> {
                use $crate::profile::value::Parameter;
                vec![$( (stringify!($field), self.$field.show(), $unit), )*]
            }
        }
    };
}

pub(super) use {choice, parameters};
