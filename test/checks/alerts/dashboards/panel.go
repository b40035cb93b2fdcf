package dashboards

import "strings"

// Dashboard is one file.
type Dashboard struct {
	UID         string // part of the dashboard's address in Grafana: it stays
	Title       string
	Description string
	Variables   []Variable // beside the data source, which each has
	Rows        []Row
}

// Variable is a choice above the dashboard, among a label's values.
type Variable struct {
	Name, Title string
	Metric      string // whose series have the label of the variable's name
}

// Row is a headline and the panels below it.
type Row struct {
	Title  string
	Panels []Panel
}

// Kind is how a panel shows what it asks for.
type Kind string

// The kinds of panels, by the names of Grafana's plugins.
const (
	Number Kind = "stat"       // the last value, large
	Lines  Kind = "timeseries" // over time
	Bars   Kind = "bargauge"   // the last values as shares of one
)

// width is of a panel, in columns; a row of a dashboard has 24.
func (k Kind) width() int {
	if k == Number {
		return 4
	}
	return 12
}

func (k Kind) height() int {
	if k == Number {
		return 4
	}
	return 8
}

// Panel shows the answers to some queries.
type Panel struct {
	Kind    Kind
	Title   string
	Help    string // what is shown, and what to do about it
	Unit    Unit
	Good    Good
	Queries []Query
	ByNode  bool // each line leads to the dashboard of its node
}

// Query is an expression with the name of its series, in which {{label}} is replaced.
type Query struct{ Expr, Legend string }

// Unit is of the values, by Grafana's name.
type Unit string

// The units.
const (
	Count     Unit = "short"
	Share     Unit = "percentunit" // 1 is all
	Seconds   Unit = "s"
	PerMinute Unit = "reqpm"
	Changes   Unit = "cpm"
)

// Good says which values are in order; the others are shown in red.
type Good string

// The values that are in order.
const (
	Any       Good = ""
	None      Good = "none"       // 0
	Some      Good = "some"       // 1 and more
	BelowMost Good = "below most" // a share below 0.9
	Plenty    Good = "plenty"     // 300 and more, as the alert on the cloud's budget has it
	Recent    Good = "recent"     // less than 15 minutes
	Known     Good = "known"      // less than 35 minutes
)

// steps are Grafana's thresholds.
func (g Good) steps() []step {
	at := func(value float64) *float64 { return &value }
	switch g {
	case None:
		return []step{{"green", nil}, {"red", at(1)}}
	case Some:
		return []step{{"red", nil}, {"green", at(1)}}
	case BelowMost:
		return []step{{"green", nil}, {"orange", at(0.8)}, {"red", at(0.9)}}
	case Plenty:
		return []step{{"red", nil}, {"orange", at(300)}, {"green", at(1000)}}
	case Known:
		return []step{{"green", nil}, {"red", at(35 * 60)}}
	case Recent:
		return []step{{"green", nil}, {"red", at(15 * 60)}}
	default:
		return []step{{"blue", nil}}
	}
}

// All are the dashboards, each in a file of its UID.
func All() []Dashboard { return []Dashboard{cluster(), cloud(), node()} }

// one is a query whose answer has one series.
func one(expr string) []Query { return []Query{{Expr: expr}} }

// by is a query whose series are named by their labels.
func by(expr string, labels ...string) []Query {
	return []Query{{expr, "{{" + strings.Join(labels, "}} {{") + "}}"}}
}
