package screen

import (
	"fmt"
	"net/netip"
	"time"
)

// Trip is a connection that was tried from one place to another.
type Trip struct {
	From, To, Way string
	// Answered is who answered; empty: nobody did, as it should be.
	Answered string
	// Seen is the address that it came from, as seen there.
	Seen netip.Addr
	Took time.Duration
}

// Trips is a table of who reaches whom, and how.
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
