package robotsim

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// call is a request that has reached its operation: the account as of now, and
// the means to read what was asked.
type call struct {
	*account
	request *http.Request
	form    url.Values
	fault   Fault
	coupled []CloudSubnet
	moment  time.Time // when the request is looked at

	// What takes time before the answer: until then, and what answers.
	until time.Time
	after endpoint
}

// reply is what an operation answers with.
type reply struct {
	status int // 0: 200
	body   any // nil: none
}

// endpoint carries out one operation. Its errors are *Error.
type endpoint func(*call) (reply, error)

// later lets an answer wait until then.
func (c *call) later(until time.Time, after endpoint) (reply, error) {
	if !until.After(c.now) {
		return after(c)
	}
	c.until, c.after = until, after
	return reply{}, nil
}

// integer reads a parameter that has to be there, as a number.
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

// list reads a parameter that may be given several times, as PHP reads it:
// server=1, server[]=1&server[]=2, server[0]=1&server[1]=2.
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

// dateFormat is how the web service writes a day.
const dateFormat = "2006-01-02"

// cancellation reads the day of a cancellation; the zero time is "now".
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

// half is a list as an injected fault lets it be seen.
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
