//! Curves: points of a published measurement, and the line that the emulated device draws.

use serde_json::{Value, json};

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By factors.
    Logarithmic,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Circles: somebody measured it.
    Published,
    /// A line: the emulated device shows it.
    Measured,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// Published or measured.
    pub mark: Mark,
    /// The pair of published and measured curves to which it belongs: they share a colour.
    pub pair: usize,
    /// The points, in ascending order.
    pub points: Vec<(f64, f64)>,
}

/// A picture with two axes and some curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// A short name, fit for a file.
    pub name: &'static str,
    /// One line about the picture.
    pub title: String,
    /// The horizontal axis.
    pub x: &'static str,
    /// How the horizontal axis is divided.
    pub x_scale: Scale,
    /// The vertical axis, which begins at zero.
    pub y: &'static str,
    /// The curves.
    pub series: Vec<Series>,
}

impl Figure {
    /// Adds a pair of curves under one name.
    pub(crate) fn pair(
        mut self,
        name: &str,
        published: Vec<(f64, f64)>,
        measured: Vec<(f64, f64)>,
    ) -> Figure {
        let pair = self.series.last().map_or(0, |series| series.pair + 1);
        for (mark, points) in [(Mark::Published, published), (Mark::Measured, measured)] {
            let word = if mark == Mark::Published { "published" } else { "measured" };
            let name = if name.is_empty() { word.to_string() } else { format!("{name}, {word}") };
            if !points.is_empty() {
                self.series.push(Series { name, mark, pair, points });
            }
        }
        self
    }

    /// Returns the points as JSON.
    pub fn json(&self) -> Value {
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|series| json!({ "name": series.name, "points": series.points }))
            .collect();
        json!({ "name": self.name, "title": self.title, "x": self.x, "y": self.y,
                "series": series })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Figure {
        /// A figure without curves.
        pub fn empty() -> Figure {
            Figure {
                name: "test",
                title: "test".to_string(),
                x: "across",
                x_scale: Scale::Linear,
                y: "up",
                series: Vec::new(),
            }
        }
    }

    #[test]
    fn a_pair_of_curves_shares_a_colour_and_no_other_has_it() {
        // Fails if a published curve could not be told from a measured one, or from another pair's;
        // or if a series without points were drawn.
        let figure = Figure::empty().pair("", vec![(1.0, 2.0)], vec![(1.0, 3.0)]);
        let figure = figure.pair("reads", Vec::new(), vec![(1.0, 4.0)]);
        let series: Vec<_> =
            figure.series.iter().map(|it| (it.name.as_str(), it.mark, it.pair)).collect();
        let published = ("published", Mark::Published, 0);
        let measured = ("measured", Mark::Measured, 0);
        assert_eq!(series, [published, measured, ("reads, measured", Mark::Measured, 1)]);
        assert_eq!(figure.json()["series"][2]["points"], json!([[1.0, 4.0]]));
    }
}
