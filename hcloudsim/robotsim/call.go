package robotsim

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// call is a request at its operation, with the current account.
type call struct {
	*account
	request *http.Request
	form    url.Values
	fault   Fault
	coupled []CloudSubnet
	moment  time.Time // arrival time of the request

	// For an operation that takes time: its end, and the endpoint that replies then.
	until time.Time
	after endpoint
}

type reply struct {
	status int // 0: 200
	body   any // nil: no body
}

// endpoint carries out one operation. Its errors are *Error.
type endpoint func(*call) (reply, error)

// later delays the reply of after until the given time.
func (c *call) later(until time.Time, after endpoint) (reply, error) {
	if !until.After(c.now) {
		return after(c)
	}
	c.until, c.after = until, after
	return reply{}, nil
}

func (c *call) integer(field string) (int, *Error) {
	text := c.form.Get(field)
	if text == "" {
		return 0, errMissing(field)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errInvalid(field)
	}
	return n, nil
}

// list returns a parameter that may be repeated, in PHP's syntax: server=1,
// server[]=1&server[]=2, server[0]=1&server[1]=2.
func (c *call) list(field string) []string {
	found := append([]string(nil), c.form[field]...)
	found = append(found, c.form[field+"[]"]...)
	for i := 0; ; i++ {
		values, more := c.form[field+"["+strconv.Itoa(i)+"]"]
		if !more {
			return found
		}
		found = append(found, values...)
	}
}

// dateFormat is the web service's date format.
const dateFormat = "2006-01-02"

// cancellation parses the day of a cancellation; "now" results in the zero time.
func (c *call) cancellation() (day time.Time, err *Error) {
	const field = "cancellation_date"
	text := strings.TrimSpace(c.form.Get(field))
	switch text {
	case "":
		return day, errMissing(field)
	case "now":
		return day, nil
	}
	day, problem := time.Parse(dateFormat, text)
	if problem != nil || day.Before(c.now.UTC().Truncate(24*time.Hour)) {
		return day, errInvalid(field)
	}
	return day, nil
}

// over reports whether the day of a cancellation has passed.
func over(day, now time.Time) bool { return !day.IsZero() && !now.Before(day.AddDate(0, 0, 1)) }

// half applies EmptyList and PartialList of an injected fault to a list.
func half[T any](f Fault, list []T) []T {
	switch {
	case f.EmptyList:
		return nil
	case f.PartialList:
		return list[:(len(list)+1)/2]
	default:
		return list
	}
}
