//! Figures as SVG: circles for what was published, lines for what the emulated device shows.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::figure::{Figure, Mark, Scale, Series};

/// Size of a figure. Unit: pixels. Source: ours; fits a page of text twice side by side.
const SIZE: (u32, u32) = (640, 400);

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// What drawing into a string can fail with.
type Failure<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Draws a figure.
///
/// # Panics
/// If the figure has no point.
pub fn svg(figure: &Figure) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let points = || figure.series.iter().flat_map(|series| &series.points);
        let xs = || points().map(|(x, _)| *x);
        let (low, high) = xs().fold((f64::INFINITY, 0.0), |(a, b), x| (x.min(a), x.max(b)));
        assert!(low.is_finite(), "a figure has points");
        let top = points().map(|(_, y)| *y).fold(0.0, f64::max) * 1.15;
        let drawn = match figure.x_scale {
            Scale::Linear => {
                let corner = free_corner(figure, |(x, y)| (x / high, y / top));
                chart(figure, &area, 0.0..high * 1.03, top, corner)
            }
            Scale::Logarithmic => {
                let width = (high / low).log2();
                let corner = free_corner(figure, |(x, y)| ((x / low).log2() / width, y / top));
                // A part of a step of room on either side.
                let x = (low / 1.3..high * 1.3).log_scale().base(2.0);
                chart(figure, &area, x, top, corner)
            }
        };
        drawn.and_then(|()| area.present()).expect("drawing into a string cannot fail");
    }
    text
}

/// Returns the corner in which a legend hides least; `place` puts a point into the unit square.
fn free_corner(figure: &Figure, place: impl Fn((f64, f64)) -> (f64, f64)) -> SeriesLabelPosition {
    let corners = [
        (SeriesLabelPosition::LowerRight, 1.0, 0.0),
        (SeriesLabelPosition::UpperLeft, 0.0, 1.0),
        (SeriesLabelPosition::UpperRight, 1.0, 1.0),
    ];
    let hidden = |across: f64, up: f64| -> usize {
        let under = |(x, y): (f64, f64)| (x - across).abs() < 0.4 && (y - up).abs() < 0.35;
        let of_series = |series: &Series| {
            let lines = series.points.windows(2).flat_map(|ends| {
                let ((x0, y0), (x1, y1)) = (place(ends[0]), place(ends[1]));
                (0..=10)
                    .map(move |i| f64::from(i) / 10.0)
                    .map(move |part| (x0 + (x1 - x0) * part, y0 + (y1 - y0) * part))
            });
            lines.filter(|point| under(*point)).count()
        };
        figure.series.iter().map(of_series).sum()
    };
    let best = corners.into_iter().min_by_key(|(_, across, up)| hidden(*across, *up));
    best.map_or(SeriesLabelPosition::LowerRight, |(corner, ..)| corner)
}

fn chart<'a, X>(
    figure: &Figure,
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    x: X,
    top: f64,
    corner: SeriesLabelPosition,
) -> Result<(), Failure<'a>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(&figure.title, ("sans-serif", 16))
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(x, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc(figure.x)
        .y_desc(figure.y)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .label_style(("sans-serif", 12))
        .axis_desc_style(("sans-serif", 13))
        .draw()?;
    for series in &figure.series {
        let colour = COLOURS[series.pair % COLOURS.len()];
        let Series { points, name, mark, .. } = series;
        if *mark == Mark::Measured {
            let style = colour.stroke_width(2);
            let line = LineSeries::new(points.iter().copied(), style);
            chart.draw_series(line)?.label(name).legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2))
            });
        } else {
            let circle = move |at| Circle::new(at, 4, colour.stroke_width(2));
            let circles = points.iter().map(|point| circle(*point));
            chart
                .draw_series(circles)?
                .label(name)
                .legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.stroke_width(2)));
        }
    }
    chart
        .configure_series_labels()
        .position(corner)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(225, 225, 225))
        .label_font(("sans-serif", 12))
        .draw()
}

/// Returns a label without digits that say nothing.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_and_name_is_drawn() {
        // Fails if a series were left out of the picture or of its legend.
        let (title, x_scale) = ("A < B".to_string(), Scale::Logarithmic);
        let figure = Figure { title, x_scale, ..Figure::empty() };
        let figure = figure.pair(
            "thing",
            vec![(8.0, 1.0), (16.0, 2.0)],
            vec![(8.0, 1.1), (9.0, 1.2), (16.0, 1.9)],
        );
        let figure = figure.pair("other", Vec::new(), vec![(8.0, 1.0), (16.0, 1.0)]);
        let text = svg(&figure);
        assert!(text.contains("#0072B2") && text.contains("#D55E00"), "a pair has its colour");
        // Two points and one in the legend.
        assert_eq!(text.matches("<circle").count(), 3);
        for part in ["thing, published", "thing, measured", "A &lt; B", "across", "up"] {
            assert!(text.contains(part), "{part} is missing");
        }
        assert_eq!((short(2.0), short(0.25)), ("2".to_string(), "0.25".to_string()));
    }
}
