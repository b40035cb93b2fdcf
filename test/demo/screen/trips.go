package screen

import (
	"fmt"
	"net/netip"
	"time"
)

// Trip is an attempted connection from one place to another.
type Trip struct {
	From, To, Way string
	// Answered is the server that replied; empty: there was no reply, as expected.
	Answered string
	// Seen is the source address that the server observed.
	Seen netip.Addr
	Took time.Duration
}

// Trips is a table of these connections.
func (p Painter) Trips(trips []Trip) string {
	t := table{title: "Packets", head: []string{"from", "to", "way", "answered by", "came from", "took"}}
	for _, trip := range trips {
		row := []string{trip.From, trip.To, trip.Way, "nobody: closed", "", ""}
		if trip.Answered != "" {
			row = []string{trip.From, trip.To, trip.Way, trip.Answered, trip.Seen.String(), fmt.Sprintf("%.1f ms", float64(trip.Took.Microseconds())/1000)}
		}
		t.rows = append(t.rows, row)
	}
	return p.table(t)
}
