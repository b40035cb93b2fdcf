package webui

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui/server"
	"github.com/underlay-ccm/underlay/test/testenv/complete"
)

// limit is the time limit of a browser for a whole test.
const limit = 90 * time.Second

// feed is a server's feed that returns a test's snapshots, and counts the requests.
type feed struct {
	mu    sync.Mutex
	live  survey.Live
	looks int
}

func (f *feed) Look(ctx context.Context) (survey.Live, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	return f.live, ctx.Err()
}

func (f *feed) show(live survey.Live) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = live
}

// seen is the number of a browser's requests for snapshots.
func (f *feed) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

// tab is a browser with the open page.
type tab struct {
	*testing.T
	ctx  context.Context
	feed *feed
	url  string
	stop func() // ends the page's server

	mu     sync.Mutex
	asked  []string // all URLs that the browser requested
	errors []string // errors of scripts
}

// chromium is the path of the browser.
func chromium(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err == nil {
		return path
	}
	complete.Skip(t, "chromium is missing: apt-get install chromium")
	return ""
}

// open starts a browser with a window size, in which the page shows a snapshot.
func open(t *testing.T, look *survey.Snapshot, width, height int, before ...step) *tab {
	t.Helper()
	f := &feed{live: survey.Live{Snapshot: look}}
	s := server.New(f)
	l, err := server.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	serving, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(serving, l) }()
	stop := sync.OnceFunc(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.WindowSize(width, height),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true),
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // chromium doesn't run as root with one
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{T: t, ctx: ctx, feed: f, url: s.URL(l), stop: stop}
	b.do(call(network.Enable, network.EnableParams{}))
	if err := chromedp.Listen(ctx, b.record); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(int64(width), int64(height)))
	b.do(before...)
	b.do(chromedp.Navigate(b.url), chromedp.WaitReady(`body[data-taken]`))
	return b
}

func (b *tab) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.errors = append(b.errors, "console: "+string(e.Type))
	}
}

// step is an action of a browser.
type step = chromedp.Action[chromedp.Void]

// call is a command of the browser's protocol.
func call[P, R any](command cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (b *tab) do(steps ...step) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// ask returns the value of a script's expression.
func ask[T any](b *tab, expression string) T {
	b.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return out
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression,
		chromedp.WithPollingTimeout(20*time.Second))); err != nil {
		b.Fatalf("%s: never: %v", expression, err)
	}
}

// stayedHere fails if the browser sent a request to any host but the page's server, or if a script
// failed.
func (b *tab) stayedHere() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	own, err := url.Parse(b.url)
	if err != nil {
		b.Fatal(err)
	}
	if len(b.asked) < 5 {
		b.Errorf("only %q were asked for: the browser was not watched", b.asked)
	}
	for _, asked := range b.asked {
		u, err := url.Parse(asked)
		if err != nil || u.Host != own.Host || !strings.HasPrefix(u.Path, own.Path) {
			b.Errorf("the page asks for %s", asked)
		}
	}
	for _, e := range b.errors {
		b.Error(e)
	}
}
