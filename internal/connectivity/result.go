package connectivity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
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
	// Sent and Lost count datagrams.
	Sent int `json:"sent,omitempty"`
	Lost int `json:"lost,omitempty"`
	// Carried is the largest packet that arrived, Interface the MTU of the pod's interface, in
	// bytes including the IP header.
	Carried   int `json:"carriedBytes,omitempty"`
	Interface int `json:"interfaceBytes,omitempty"`
}

// State summarizes a result.
type State string

// The states, the best first.
const (
	Open   State = "open"
	Slow   State = "slow"
	Lossy  State = "lossy"
	Narrow State = "narrow"
	Closed State = "closed"
)

// State returns Slow for responses later than slow, unless that is 0 or the target may be
// distant.
func (r Result) State(slow time.Duration) State {
	switch {
	case r.Failure != "":
		return Closed
	case r.Carried < r.Interface:
		return Narrow
	case r.Lost > 0:
		return Lossy
	case slow > 0 && r.Path != Outside && r.Path != LoadBalancer && time.Duration(r.Took)*time.Microsecond > slow:
		return Slow
	}
	return Open
}

func (s State) rank() int { return slices.Index([]State{Open, Slow, Lossy, Narrow, Closed}, s) }

// words returns the text of a result in a matrix.
func (r Result) words(s State) string {
	switch s {
	case Closed:
		return string(r.Kind) + " " + string(r.Failure)
	case Narrow:
		return fmt.Sprintf("mtu %d < %d", r.Carried, r.Interface)
	case Lossy:
		return fmt.Sprintf("%d of %d lost", r.Lost, r.Sent)
	case Slow:
		return "slow " + took(r.Took)
	}
	return took(r.Took)
}

func took(microseconds int64) string {
	ms := float64(microseconds) / 1000
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
