package connectivity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Failure is the reason why a trial failed.
type Failure string

const (
	Silent Failure = "no answer"
	// Refused: the connection was refused by the target or rejected by a filter.
	Refused Failure = "refused"
	// Unreachable: a host or router reported that there is no route.
	Unreachable Failure = "unreachable"
	// Stranger: another host responded.
	Stranger Failure = "another answers"
	// Status: an HTTP server returned a status other than 200.
	Status Failure = "wrong status"
	Other  Failure = "failed"
)

// Result is the result of a trial.
type Result struct {
	Trial
	Failure Failure `json:"failure,omitempty"`
	// Detail is the error text of the kernel or the text of the response.
	Detail string `json:"detail,omitempty"`
	// Took is the time to the first response, in microseconds.
	Took int64 `json:"tookMicroseconds,omitempty"`
	// Carried is the largest packet that arrived, Interface the MTU of the pod's interface, in
	// bytes including the IP header.
	Carried   int `json:"carriedBytes,omitempty"`
	Interface int `json:"interfaceBytes,omitempty"`
}

// State summarizes a result.
type State string

const (
	Open State = "open"
	// Narrow: packets of the MTU of the pod's interface are lost.
	Narrow State = "narrow"
	Closed State = "closed"
)

func (r Result) State() State {
	switch {
	case r.Failure != "":
		return Closed
	case r.Carried < r.Interface:
		return Narrow
	}
	return Open
}

// words returns the text of a result in a matrix.
func (r Result) words() string {
	switch r.State() {
	case Closed:
		return string(r.Kind) + " " + string(r.Failure)
	case Narrow:
		return fmt.Sprintf("mtu %d < %d", r.Carried, r.Interface)
	}
	ms := float64(r.Took) / 1000
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// mark begins the lines of a log that are results. The last such line is mark and end.
const (
	mark = "underlay-probe "
	end  = "end"
)

// WriteResults writes one line per result, in the format of ReadResults.
func WriteResults(out io.Writer, results []Result) error {
	for _, r := range results {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s%s\n", mark, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, mark+end)
	return err
}

// ErrCut is returned for a log without the last line.
var ErrCut = errors.New("the probe's log is not complete")

// ReadResults parses the results in a probe's log. It ignores results of trials that were not
// requested, because a writer to a pod's log must not be able to add to the matrix.
func ReadResults(log []byte, trials []Trial) ([]Result, error) {
	known := make(map[Trial]bool, len(trials))
	for _, t := range trials {
		known[t] = true
	}
	var all []Result
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, is := strings.CutPrefix(lines.Text(), mark)
		switch {
		case !is:
			continue
		case text == end && len(known) > 0:
			return all, fmt.Errorf("%w: %d of %d trials are missing", ErrCut, len(known), len(trials))
		case text == end:
			return all, nil
		}
		var r Result
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return all, fmt.Errorf("the probe's log: %w", err)
		}
		if known[r.Trial] {
			delete(known, r.Trial)
			all = append(all, r)
		}
	}
	return all, errors.Join(ErrCut, lines.Err())
}
