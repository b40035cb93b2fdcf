package main

import (
	"bufio"
	"context"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// played runs the commands that the demo prints for another terminal: they work unchanged, without
// flags.
func played(t *testing.T, text string) {
	t.Helper()
	path := regexp.MustCompile(`(?m)^  export PATH=.*$`).FindString(text)
	if path == "" {
		t.Fatalf("no line sets the path in\n%s", text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := func(command string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "sh", "-c", path+"\n"+command)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
		return cmd
	}
	for _, c := range []struct{ command, says string }{
		{"kubectl get nodes -o wide", "node-3"},
		{"underlayctl nodes", "stands"},
		{"underlayctl pools", "10.244.0.0/16"},
		{"underlayctl doctor", " checks pass."},
		{"underlayctl lb", "default/web"},
		{"underlayctl inspect node node-3", "NetworkUnavailable=False"},
		{"kubectl underlay routes", "192.168.178.0/24"},
		{regexp.MustCompile(`(?m)^  (cloud /networks/\d+)$`).FindStringSubmatch(text)[1], `"routes"`},
	} {
		out, err := shell(c.command).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.says) || strings.Contains(string(out), "not seen") {
			t.Errorf("%s: %v, without %q or with what was not seen:\n%s", c.command, err, c.says, out)
		}
	}
	if out, err := shell("kubectl get nodes -o name").CombinedOutput(); err != nil || strings.Count(string(out), "node/") != 3 {
		t.Errorf("the Nodes are %s (%v), want the 3 that are left", out, err)
	}
	page := shell("exec underlayctl ui")
	out, err := page.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	said.Scan()
	url := strings.TrimPrefix(said.Text(), "The page is at ")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatalf("it says %q: %v", said.Text(), err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("the page: %v, %+v", err, answer)
	}
	if err == nil {
		answer.Body.Close()
	}
	cancel()
	_ = page.Wait() // it was killed
}
