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

// mark begins the lines of a log that are results; the last line is the mark and end.
const (
	mark = "underlay-probe "
	end  = "end"
)

// WriteResults writes a result a line, which ReadResults finds again in a log.
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

// ErrCut is a log without its end.
var ErrCut = errors.New("the probe's log is not complete")

// ReadResults reads them from a probe's log. Results of trials that were not asked
// for are left out: whoever may write to a pod's log must not add to the matrix.
func ReadResults(log []byte, asked []Trial) ([]Result, error) {
	known := make(map[Trial]bool, len(asked))
	for _, t := range asked {
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
			return all, fmt.Errorf("%w: %d of %d trials are missing", ErrCut, len(known), len(asked))
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
