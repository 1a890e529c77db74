package redlatchtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// CommandError is a command that the server refused.
type CommandError string

func (refusal CommandError) Error() string { return string(refusal) }

// Code is the first word of the text.
func (refusal CommandError) Code() string {
	code, _, _ := strings.Cut(string(refusal), " ")
	return code
}

func isRefusal(err error) bool {
	var refusal CommandError
	return errors.As(err, &refusal)
}

// connection speaks RESP3, one command after the other.
type connection struct {
	guard  sync.Mutex
	socket net.Conn
	reader *bufio.Reader
}

// dial connects, and enters a namespace if there is a password for it.
func dial(host string, port int, password string) (*connection, error) {
	socket, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), replyTimeMax)
	if err != nil {
		return nil, err
	}
	made := &connection{socket: socket, reader: bufio.NewReader(socket)}
	hello := []any{"HELLO", 3, "SETNAME", "redlatch-test"}
	if password != "" {
		hello = []any{"HELLO", 3, "AUTH", "default", password, "SETNAME", "redlatch-test"}
	}
	if _, err := made.call(hello...); err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

func (connection *connection) close() {
	_ = connection.socket.Close()
}

func (connection *connection) call(words ...any) (any, error) {
	connection.guard.Lock()
	defer connection.guard.Unlock()
	request := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		text := fmt.Sprint(word)
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(text), text)
	}
	if err := connection.socket.SetDeadline(time.Now().Add(replyTimeMax)); err != nil {
		return nil, err
	}
	if _, err := connection.socket.Write(request); err != nil {
		return nil, err
	}
	reply, err := connection.read()
	if refusal, ok := reply.(CommandError); ok && err == nil {
		return nil, refusal
	}
	return reply, err
}

// read reads one reply. Push messages are skipped.
func (connection *connection) read() (any, error) {
	line, err := connection.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("a reply is an empty line")
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return CommandError(text), nil
	case '#':
		return text == "t", nil
	case '_':
		return nil, nil
	case ',':
		return strconv.ParseFloat(text, 64)
	case '(':
		return text, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("a reply begins with %q", line)
	}
	switch {
	case kind == ':':
		return number, nil
	case number < 0:
		return nil, nil
	case number > math.MaxInt32:
		return nil, fmt.Errorf("a reply begins with %q", line)
	}
	return connection.readLong(kind, int(number))
}

// readLong reads what follows the line of a reply with a length.
func (connection *connection) readLong(kind byte, length int) (any, error) {
	switch kind {
	case '$', '=', '!':
		text := make([]byte, length+2)
		if _, err := io.ReadFull(connection.reader, text); err != nil {
			return nil, err
		}
		text = text[:length]
		switch kind {
		case '=':
			return string(text[4:]), nil
		case '!':
			return CommandError(text), nil
		}
		return string(text), nil
	case '*', '~':
		return connection.readList(length)
	case '%':
		flat, err := connection.readList(2 * length)
		if err != nil {
			return nil, err
		}
		entries := make(map[string]any, length)
		for index := 0; index < len(flat); index += 2 {
			entries[fmt.Sprint(flat[index])] = flat[index+1]
		}
		return entries, nil
	case '>':
		if _, err := connection.readList(length); err != nil {
			return nil, err
		}
		return connection.read()
	}
	return nil, fmt.Errorf("a reply begins with %q", kind)
}

func (connection *connection) readList(length int) ([]any, error) {
	values := make([]any, 0, length)
	for len(values) < length {
		value, err := connection.read()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// decode turns a reply into a type of this package.
func decode[T any](reply any, err error) (T, error) {
	var decoded T
	if err != nil {
		return decoded, err
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return decoded, err
	}
	return decoded, json.Unmarshal(text, &decoded)
}

// A reply takes longer than this only if the node is paused or the server is gone.
const replyTimeMax = 30 * time.Second
