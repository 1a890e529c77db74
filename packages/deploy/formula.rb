# Plays Homebrew for one formula: what it downloads on a platform, and what it installs.
#
#   ruby formula.rb redlatch.rb macos|linux arm|intel [PREFIX]
#
# Prints the URL and the checksum as JSON. With PREFIX it also runs `install` in the current folder, into PREFIX.

require "fileutils"
require "json"
require "pathname"

FILE, SYSTEM, MACHINE, PREFIX = ARGV

class Folder < Pathname
  def install(*files)
    mkpath
    files.flatten.each do |file|
      names = file.is_a?(Hash) ? file : { file => File.basename(file) }
      names.each { |from, to| FileUtils.cp_r(from, self + to) }
    end
  end
end

class Formula
  FOLDERS = {
    bin: "bin", man1: "share/man/man1", doc: "share/doc/redlatch", bash_completion: "etc/bash_completion.d",
    fish_completion: "share/fish/vendor_completions.d", zsh_completion: "share/zsh/site-functions"
  }.freeze

  class << self
    attr_reader :found

    def take(name, value)
      @found = (@found || {}).merge(name => value)
    end

    %i[desc homepage version license url sha256].each { |name| define_method(name) { |value| take(name, value) } }
    { macos: SYSTEM, linux: SYSTEM, arm: MACHINE, intel: MACHINE }.each do |name, current|
      define_method("on_#{name}") { |&block| block.call if name.to_s == current }
    end

    def service; end

    def test; end
  end

  FOLDERS.each { |name, folder| define_method(name) { Folder.new(PREFIX) + folder } }
end

class Pathname
  def install(*files)
    Folder.new(to_s).install(*files)
  end
end

load FILE
Redlatch.new.install if PREFIX
puts JSON.generate(url: Redlatch.found[:url], sha256: Redlatch.found[:sha256])
