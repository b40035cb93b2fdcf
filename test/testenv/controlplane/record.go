package controlplane

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// RecordsVariable names the environment variable of the folder in which each control plane writes a
// Record when it stops. If it isn't set, there are no records.
const RecordsVariable = "UNDERLAY_AUDIT_DIR"

// Record contains the requests of the accounts of deploy/ to one control plane, each once: without
// its time, and with the program's name alone as UserAgent.
type Record struct {
	Package  string // package of the test that started it, such as test/e2e
	Test     string // the function
	Requests []AuditEvent
}

// recordsFolder is empty if no records are to be written.
func recordsFolder() (string, error) {
	folder := os.Getenv(RecordsVariable)
	if folder == "" {
		return "", nil
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() || !filepath.IsAbs(folder) {
		return "", fmt.Errorf("%s: %q: give the absolute path of a folder, or don't set it", RecordsVariable, folder)
	}
	return folder, nil
}

// ReadRecords reads the records that the control planes of a test run wrote to a folder.
func ReadRecords(folder string) ([]Record, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read the audit records: %w", err)
	}
	var records []Record
	for _, file := range files {
		var r Record
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err == nil {
			err = json.Unmarshal(content, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit record %s: %w", file.Name(), err)
		}
		records = append(records, r)
	}
	return records, nil
}

// record writes the Record of a control plane that has stopped.
func (c *ControlPlane) record() error {
	if c.records == "" {
		return nil
	}
	events, err := c.requests()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the API server was never started
	}
	if err != nil {
		return err
	}
	content, err := json.Marshal(Record{
		Package: c.starter.pkg, Test: c.starter.function, Requests: summary(events),
	})
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(c.records, strings.ReplaceAll(c.starter.pkg, "/", "-")+"-*.json")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// summary returns the requests of the accounts of deploy/, each once.
func summary(events []AuditEvent) []AuditEvent {
	var all []AuditEvent
	for _, e := range events {
		if !strings.HasPrefix(e.User, "system:serviceaccount:kube-system:underlay-") {
			continue
		}
		e.Time = time.Time{}
		e.UserAgent, _, _ = strings.Cut(e.UserAgent, "/")
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b AuditEvent) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.UserAgent, b.UserAgent))
	})
	return slices.Compact(all)
}

// function is a function of this module.
type function struct{ pkg, function string }

// modulePath is the prefix of all functions of the module.
const modulePath = "github.com/underlay-ccm/underlay"

// outermost returns the outermost caller of this module on the stack: in a test the test's
// function, or one that was given to t.Run.
func outermost() function {
	var found function
	stack := make([]uintptr, 64)
	frames := runtime.CallersFrames(stack[:runtime.Callers(1, stack)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if name, ours := strings.CutPrefix(frame.Function, modulePath+"/"); ours {
			found = parseFunction(name)
		}
	}
	return found
}

// parseFunction parses the compiler's name of a function, such as "test/e2e_test.TestX.func1".
func parseFunction(name string) function {
	slash := strings.LastIndex(name, "/") + 1
	pkg, rest, _ := strings.Cut(name[slash:], ".")
	rest, _, _ = strings.Cut(rest, ".func")
	return function{name[:slash] + strings.TrimSuffix(pkg, "_test"), rest}
}
