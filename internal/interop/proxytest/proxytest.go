// Package proxytest runs reverse proxies and other programs in tests.
package proxytest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timeout bounds the start and the end of a program.
const timeout = 10 * time.Second

// Program returns the path of a program. Without it, the test is skipped, or fails if
// PENSTOCK_REQUIRE_PROXIES=1 or CI=true is set.
func Program(t testing.TB, program string) string {
	t.Helper()
	for _, name := range []string{program, "/usr/sbin/" + program} { // which PATH may not contain
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("PENSTOCK_REQUIRE_PROXIES") == "1" || os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: PENSTOCK_REQUIRE_PROXIES=1 or CI=true requires it", program)
	}
	t.Skipf("%s is not installed; install it to run this test", program)
	return ""
}

// Run runs a program until the test ends, and returns when it accepts connections at an address.
func Run(t testing.TB, program, dir string, args []string, addr string) {
	var output bytes.Buffer // belongs to cmd until it has exited
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &output, &output
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	require.NoError(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(timeout):
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(program), output.String())
		}
	})
	for deadline := time.Now().Add(timeout); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-exited:
			require.Fail(t, "the proxy has exited", "%s", output.String())
		case <-time.After(10 * time.Millisecond):
			require.True(t, time.Now().Before(deadline), "the proxy does not listen at %s", addr)
		}
	}
}

// NginxCommand returns the arguments with which nginx runs in the foreground, with a configuration in a
// directory of its own. block is what the configuration has inside of http { }.
func NginxCommand(t testing.TB, dir, block string) []string {
	t.Helper()
	config := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
		daemon off;
		master_process off;
		pid %[1]s/nginx.pid;
		error_log stderr;
		events {}
		http {
			access_log off;
			client_body_temp_path %[1]s/body;
			proxy_temp_path %[1]s/proxy;
			fastcgi_temp_path %[1]s/fastcgi;
			uwsgi_temp_path %[1]s/uwsgi;
			scgi_temp_path %[1]s/scgi;
			%[2]s
		}`, dir, block), 0o600))
	return []string{"-p", dir, "-e", "stderr", "-c", config}
}

// WriteCertificate writes a certificate for example.com with its key to example.com.pem, and the key to
// example.com.key.
func WriteCertificate(t testing.TB, dir string) *x509.CertPool {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		DNSNames:              []string{"example.com"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "example.com.pem"), append(certPEM, keyPEM...), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "example.com.key"), keyPEM, 0o600))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(certPEM))
	return roots
}
