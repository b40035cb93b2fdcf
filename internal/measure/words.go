package measure

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Words of Seen and Assumed. Where the simulator knows both answers they are compared, so an
// experiment uses these and nothing else.
const (
	AtStart, AtEnd            = "from its start", "at its end"
	Lowest, InTurn            = "the first free one", "the one after the last"
	Moves, Refused            = "moves", "refused"
	Taken                     = "taken"
	Dropped, Forwarded        = "dropped", "forwarded"
	OwnPublic, OtherAddress   = "its public address", "another address"
	WithHeader, WithoutHeader = "with the header", "without"
	Served, NotServed         = "served", "not served"
	WherePrimaryIPs           = "where its primary IPs are"
	ZonesFirst                = "elsewhere in the zone, or refused"
	AsManyAsTried             = "as many as were tried"
	none                      = "none"
)

// Bytes renders an MTU.
func Bytes(n int) string { return strconv.Itoa(n) + " bytes" }

// Requests renders a rate limit.
func Requests(n int) string { return strconv.Itoa(n) + " an hour" }

// Version renders that of the PROXY protocol; 0 is none.
func Version(n int) string {
	if n == 0 {
		return "no header"
	}
	return fmt.Sprintf("version %d", n)
}

// Hosts renders how many hosts a gateway knows at most.
func Hosts(n int) string { return strconv.Itoa(n) + " hosts" }

// Took renders how long something took: milliseconds below a second, else seconds with a digit.
func Took(d time.Duration) string {
	switch ms := d.Round(time.Millisecond); {
	case ms < time.Second && ms > -time.Second:
		return strconv.FormatInt(ms.Milliseconds(), 10) + " ms"
	default:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
}

// Between renders how long several things took: the shortest and the longest.
func Between(all []time.Duration) string {
	if len(all) == 0 {
		return none
	}
	shortest, longest := Took(slices.Min(all)), Took(slices.Max(all))
	if shortest == longest {
		return shortest
	}
	return shortest + " to " + longest
}

// Around renders when several things happened, against the end of an action: negative is before it.
func Around(all []time.Duration) string {
	if len(all) == 0 {
		return none
	}
	side := func(d time.Duration) string {
		if d < 0 {
			return " before"
		}
		return " after"
	}
	first, last := slices.Min(all), slices.Max(all)
	from, to := Took(first.Abs()), Took(last.Abs())
	switch {
	case side(first) != side(last):
		return from + side(first) + " to " + to + side(last)
	case from == to:
		return from + side(first)
	}
	return from + " to " + to + side(first)
}

// seconds are durations of a profile.
func seconds(all []float64) []time.Duration {
	out := make([]time.Duration, len(all))
	for i, s := range all {
		out[i] = time.Duration(s * float64(time.Second))
	}
	return out
}

// either is one of two words.
func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
